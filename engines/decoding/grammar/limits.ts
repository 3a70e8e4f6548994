// Time limits on compiling and matching grammars.

/** An answer of a matcher that takes longer is slow: no other matcher waits behind it. */
export const slowAnswerMs = 250;
/** A compilation that nobody waits for any more goes on for so long: another thread would take as long to start. */
export const abandonedCompileMs = 250;
/** A compilation that takes longer is slow. A schema of an open object takes some 20 ms for each letter that its names have. */
export const slowCompileMs = 1000;
/** Longest time compiling one grammar may take. */
export const compileLimitMs = 10_000;
/** Longest time one answer may take: most take some 50 us. */
export const answerLimitMs = 3000;
