// Which key gives which class, and which does what.
const SIGNS = "1234567890qwertyuiopasdfghjklzxcvbnm";

export const KEYS = SIGNS.length; // so many classes have one
export const keyOf = (place) => SIGNS[place] ?? "";
export const placeOf = (key) => (key.length === 1 ? SIGNS.indexOf(key.toLowerCase()) : -1);

export function isTyping(event) {
  const { target } = event;
  return target.matches("input:not([type=checkbox]):not([type=file]), select, textarea");
}
