// Time limits on compiling and matching grammars.

/**
 * If computing a token mask takes longer than this, the matcher is slow: it no longer shares its thread with other matchers.
 */
export const slowAnswerMs = 250;
/**
 * Time for which a compilation may continue after the last request for it was cancelled. Starting another thread would take as
 * long.
 */
export const abandonedCompileMs = 250;
/**
 * A compilation that takes longer than this is slow. A schema of an open object takes some 20 ms for each letter of its
 * property names.
 */
export const slowCompileMs = 1000;
/** Maximum time to compile one grammar. */
export const compileLimitMs = 10_000;
/** Maximum time to compute one token mask. Most take some 50 us. */
export const answerLimitMs = 3000;
