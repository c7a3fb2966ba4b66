"""Teaching in the browser: a person labels what the model asks for, and watches it get better."""
