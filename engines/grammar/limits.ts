// The times by which grammars are told apart.

/** What takes longer, compiling or one answer, is slow: nobody else's grammar waits behind it. */
export const slowMs = 250;
/** Longest time compiling one grammar may take. */
export const compileLimitMs = 10_000;
/** Longest time one answer may take: most take some 50 us. */
export const answerLimitMs = 3000;
