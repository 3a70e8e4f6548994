// Time limits on compiling and matching grammars.

/** An answer above this is slow: no other matcher shares its thread. */
export const slowAnswerMs = 250;
/** An abandoned compilation may run for this time: starting another thread would take as long. */
export const abandonedCompileMs = 250;
/** A compilation above this is slow. A schema of an open object takes some 20 ms for each letter of its names. */
export const slowCompileMs = 1000;
/** Longest time to compile one grammar. */
export const compileLimitMs = 10_000;
/** Longest time for one answer; most take some 50 us. */
export const answerLimitMs = 3000;
