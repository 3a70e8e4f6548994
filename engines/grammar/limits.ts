// Time limits on compiling and matching grammars.

/** A compilation, or an answer of a matcher, that takes longer is slow: no other client's grammar waits behind it. */
export const slowMs = 250;
/** Longest time compiling one grammar may take. */
export const compileLimitMs = 10_000;
/** Longest time one answer may take: most take some 50 us. */
export const answerLimitMs = 3000;
