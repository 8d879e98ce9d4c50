// What a person is asked to read aloud: numbers, drawn anew each time, in any language.

const NUMBER_SECONDS = 2 / 3; // of speech, about, in one number

/** Numbers whose reading takes about so many seconds of speech. */
export function prompt(seconds) {
  const drawn = new Uint32Array(Math.ceil(seconds / NUMBER_SECONDS));
  crypto.getRandomValues(drawn);
  return Array.from(drawn, (number) => 20 + (number % 80)).join(" – ");
}
