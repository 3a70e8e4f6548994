// Time limits on compiling and matching grammars.

/**
 * Time in ms above which computing a token mask is slow. A slow matcher does not share its thread with other matchers.
 */
export const slowAnswerMs = 250;
/**
 * Time in ms for which a compilation may continue when no request needs it any more. Stopping it would end its thread,
 * and starting another thread takes about this time.
 */
export const abandonedCompileMs = 250;
/**
 * Time in ms above which a compilation is slow. If a schema allows additional properties, compiling takes about 20 ms
 * for each letter of its property names.
 */
export const slowCompileMs = 1000;
/** Maximum time in ms to compile one grammar. */
export const compileLimitMs = 10_000;
/** Maximum time in ms to compute one token mask. Most masks take about 50 us. */
export const answerLimitMs = 3000;
