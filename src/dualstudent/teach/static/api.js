// Requests to the program; every address is relative, so that the token stays in front of it.
// By getRandomValues, as randomUUID is there for local addresses only.
export const tab = crypto.getRandomValues(new Uint32Array(4)).join("-");

export class Refused extends Error {}

async function read(response) {
  if (response.status === 204) return null;
  const content = await response.json();
  if (!response.ok) throw new Refused(content.error ?? response.statusText);
  return content;
}

export async function get(address) {
  return read(await fetch(address));
}

export async function post(address, content) {
  return read(await fetch(address, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: content instanceof Blob ? content : JSON.stringify(content ?? {}),
  }));
}

export const picture = (number, side) => `image/${number}/${side}`;
