// Attention over the pages of the KV cache, one KV head and one tile of tokens at a time. If many queries share a tile,
// its keys and values are converted to floats once for all of them. If few queries share a tile, the products read the
// page without conversion. The softmax is updated after every tile, and results are rescaled if a larger score appears.
// In this file, a query is one head of one token.

import { BF16, F16, F32 } from "../types";
import {
  headBytes, keyEightBytes, keyScalesAt, keysAt, scaleStride, unpackKeys, unpackValues, valueEightBytes, 
  valueScalesAt,valuesAt,
} from "./attention-pages";
import { beginRecords, biasScores, capScores, hideScores, TAIL, weigh } from "./attention-softmax";
import { multiplyRows, resultOf, setRow, setScale } from "./attention-tiles";

export { kvPageBytes } from "./attention-pages";
export { mergeAttention } from "./attention-softmax";
export { kvWrite } from "./attention-write";

/**
 * Maximum size of a tile: number of tokens, and number of floats in its keys. Its values have as many floats as its
 * keys. Both arrays fit in the L1 cache. A tile has at least 8 tokens, so a head has at most 512 floats.
 */
const TILE_TOKENS: i32 = 32;
const TILE_FLOATS: i32 = 4096;
/**
 * Maximum number of queries for which the products read a tile without conversion. For more queries, the tile is first
 * converted to floats.
 */
const FEW_QUERIES: i32 = 8;
/** Number of bytes of one query's scores in a tile. */
const SCORES: usize = 128;

// Scratch memory of a call, in the first 64 KiB of memory, which the host reserves for the kernels. It has room for a
// tile's keys and values, the scores of four queries, their softmax weights times a scale, the row tables of both
// matrix products, and the row and the slope of each query.
const KEYS: usize = (__heap_base + 15) & ~15;
// There are unused bytes after the keys, because products with an incomplete tile read beyond its end.
const VALUES: usize = KEYS + TILE_FLOATS * 4 + SCORES;
const SCORES_AT: usize = VALUES + TILE_FLOATS * 4;
const SCALED: usize = 4 * SCORES;
const SCORING: usize = SCORES_AT + 2 * SCALED;
const SUMMING: usize = SCORING + 64;
const ROWS: usize = SUMMING + 64;
const SLOPES: usize = ROWS + 16;

// State of the current call, set by attend(); undefined between calls. Names with Row or Step are distances in bytes.
let sharing: i32 = 0;
let headFloats: i32 = 0;
let scoreScale: f32 = 0;
let scoreCap: f32 = 0;
let queryCount: i32 = 0;
let queries: usize = 0;
let queryRow: usize = 0;
let queryStep: usize = 0;
let records: usize = 0;
let recordRow: usize = 0;
let recordStep: usize = 0;
let scaleStep: usize = 0;
/** Slopes of the query heads of the current KV head; 0 = no position bias. */
let headSlopes: usize = 0;
/** Number of tokens to which a row (one token of the call) attends, not counting those before its own token. */
let seenFromOwn: i32 = 0;

// State of the current tile. Row i (token i of the call) attends to tokens hiddenToFirst + i to seenByFirst + i
// (exclusive) of the tile. This range may extend beyond the tile.
let keys: usize = 0;
let keyEight: usize = 0;
let keyScales: usize = 0;
let values: usize = 0;
let valueEight: usize = 0;
let valueScales: usize = 0;
let hiddenToFirst: i32 = 0;
let seenByFirst: i32 = 0;

export function attend(
  kvType: i32, pages: usize, pageCount: i32, blockTokens: i32, q: usize, qStride: i32, n: i32, firstPosition: i32,
  heads: i32, kvHeads: i32, headLength: i32, scale: f32, softcap: f32, behind: i32, ahead: i32, out: usize,
  slopes: usize,
): void {
  beginRecords(n * heads, headLength, out);
  sharing = heads / kvHeads;
  headFloats = headLength;
  scoreScale = scale;
  scoreCap = softcap;
  queryCount = n * sharing;
  queryRow = <usize>qStride << 2;
  queryStep = <usize>headLength << 2;
  recordStep = <usize>(headLength + TAIL) << 2;
  recordRow = <usize>heads * recordStep;
  scaleStep = scaleStride(blockTokens);
  const partBytes = <usize>headBytes(kvType, headLength, blockTokens);
  // Tokens after the last row's token have not been written, so no row can attend to them.
  const end = firstPosition + n;
  const firstSeen = firstPosition - min(behind, end);
  seenFromOwn = 1 + min(ahead, n);
  const firstSeenEnd = firstPosition + seenFromOwn;
  for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
    queries = q + <usize>(kvHead * sharing) * queryStep;
    records = out + <usize>(kvHead * sharing) * recordStep;
    headSlopes = slopes == 0 ? 0 : slopes + (<usize>(kvHead * sharing) << 2);
    for (let page = 0; page < pageCount; page++) {
      const part = <usize>load<i32>(pages + (<usize>page << 3)) + <usize>kvHead * partBytes;
      const position = load<i32>(pages + (<usize>page << 3), 4);
      hiddenToFirst = firstSeen - position;
      seenByFirst = firstSeenEnd - position;
      attendPage(kvType, part, min(blockTokens, end - position), blockTokens);
    }
  }
}

/**
 * Computes attention of all queries over a page. `written` is the number of tokens that have been written to the page;
 * the page is empty if it is less than 1.
 */
function attendPage(kvType: i32, part: usize, written: i32, blockTokens: i32): void {
  if (hiddenToFirst >= written) return;
  const tileTokens = min(TILE_TOKENS, (TILE_FLOATS / headFloats) & ~7);
  // Keys are stored in groups of 8, so a tile begins at a multiple of 8.
  let first = max(hiddenToFirst, 0) & ~7;
  hiddenToFirst -= first;
  seenByFirst -= first;
  for (; first < written; first += tileTokens) {
    attendTile(kvType, part, first, min(tileTokens, written - first), blockTokens, tileTokens);
    hiddenToFirst -= tileTokens;
    seenByFirst -= tileTokens;
  }
}

/** Computes attention of all queries over `tokens` tokens of a page, from token `first` on. */
function attendTile(kvType: i32, part: usize, first: i32, tokens: i32, blockTokens: i32, tileTokens: i32): void {
  keys = keysAt(kvType, part, first, headFloats);
  keyEight = keyEightBytes(kvType, headFloats);
  keyScales = keyScalesAt(kvType, part, first, headFloats, blockTokens);
  values = valuesAt(kvType, part, first, headFloats, blockTokens);
  valueEight = valueEightBytes(kvType, blockTokens);
  valueScales = valueScalesAt(kvType, part, first, headFloats, blockTokens);
  if (kvType == F32) return attendQueries<f32>(tokens);
  if (queryCount <= FEW_QUERIES) {
    if (kvType == BF16) attendQueries<u16>(tokens);
    else if (kvType == F16) attendQueries<i16>(tokens);
    else attendQueries<i8>(tokens);
    return;
  }
  unpackKeys(kvType, keys, keyScales, scaleStep, tokens, headFloats, KEYS);
  unpackValues(kvType, values, valueEight, valueScales, scaleStep, tokens, headFloats, VALUES, tileTokens);
  keys = KEYS;
  keyEight = keyEightBytes(F32, headFloats);
  values = VALUES;
  valueEight = valueEightBytes(F32, tileTokens);
  attendQueries<f32>(tokens);
}

/**
 * Computes attention of all queries over the tile, in batches of up to four queries that share each read of the tile.
 */
function attendQueries<T>(tokens: i32): void {
  // Skips rows (tokens of the call) that attend to no token of the tile, because the softmax needs at least one score.
  let query = max(0, 1 - seenByFirst) * sharing;
  const end = min(queryCount, (tokens - hiddenToFirst) * sharing);
  while (query < end) {
    const left = end - query;
    // Two batches of three queries are faster than batches of four and two.
    const count = left == 4 || left > 6 ? 4 : min(left, 3);
    attendSome<T>(query, count, tokens);
    query += count;
  }
}

/** Computes attention of up to four queries over the `tokens` tokens of the tile. */
function attendSome<T>(query: i32, count: i32, tokens: i32): void {
  const group = groupFloats<T>();
  const lastRow = beginRows<T>(query, count);
  // Among the rows of these queries, the last row attends to the latest tokens.
  const seen = min(tokens, seenByFirst + lastRow);
  const vectors = (seen + 3) >> 2;
  if (sizeof<T>() == 1) memory.fill(SCORES_AT, 0, <usize>count * SCORES);
  for (let d = 0; d < headFloats; d += group) {
    const from = keys + <usize>(d * 8) * sizeof<T>();
    const depth = <usize>min(group, headFloats - d);
    multiplyRows<T>(count, true, SCORING, <usize>d << 2, 0, depth, from, keyEight, vectors, scalesOf(keyScales, d));
  }
  for (let r = 0; r < count; r++) weighQuery(r, seen);
  for (let d = 0; d < headFloats; d += group) {
    if (sizeof<T>() == 1) scaleWeights(<usize>count * SCORES, scalesOf(valueScales, d));
    const from = values + <usize>(d >> 3) * valueEight;
    const width = min(group, headFloats - d) >> 2;
    multiplyRows<T>(count, false, SUMMING, 0, <usize>d << 2, <usize>seen, from, valueEight, width, 0);
  }
}

/**
 * Fills the row tables (addresses of the factors and results) of both matrix products for `count` queries. Returns the
 * row number of the last query.
 */
// @ts-expect-error: decorator
@inline
function beginRows<T>(query: i32, count: i32): i32 {
  let row = query / sharing;
  let head = query - row * sharing;
  for (let r = 0; r < count; r++) {
    if (head == sharing) {
      head = 0;
      row++;
    }
    setRow(SCORING, r, queries + <usize>row * queryRow + <usize>head * queryStep, scoresOf(r));
    const weights = sizeof<T>() == 1 ? scoresOf(r) + SCALED : scoresOf(r);
    setRow(SUMMING, r, weights, records + <usize>row * recordRow + <usize>head * recordStep);
    store<i32>(ROWS + (<usize>r << 2), row);
    if (headSlopes != 0) store<f32>(SLOPES + (<usize>r << 2), load<f32>(headSlopes + (<usize>head << 2)));
    head++;
  }
  return row;
}

/**
 * Turns the scores of query r for `tokens` tokens into softmax weights. Tokens to which the query does not attend get
 * weight 0.
 */
// @ts-expect-error: decorator
@inline
function weighQuery(r: i32, tokens: i32): void {
  const scores = scoresOf(r);
  const vectors = (tokens + 3) >> 2;
  const row = load<i32>(ROWS + (<usize>r << 2));
  const hidden = hiddenToFirst + row;
  const seen = min(tokens, seenByFirst + row);
  let scale = scoreScale;
  if (scoreCap > 0) {
    capScores(scores, vectors, scale, scoreCap);
    scale = 1;
  }
  if (headSlopes != 0) {
    const slope = load<f32>(SLOPES + (<usize>r << 2));
    biasScores(scores, vectors, scale, slope, seenByFirst + row - seenFromOwn);
    scale = 1;
  }
  if (hidden > 0 || seen < vectors << 2) hideScores(scores, vectors, hidden, seen);
  setScale(SUMMING, r, weigh(scores, vectors, scale, resultOf(SUMMING, r) + queryStep));
}

/** Returns the number of floats of a head that share a scale; the whole head if T has no scales. */
// @ts-expect-error: decorator
@inline
function groupFloats<T>(): i32 {
  return sizeof<T>() == 1 ? 32 : headFloats;
}

/** Returns the address of the tile's scales for the group that begins at dimension d. */
// @ts-expect-error: decorator
@inline
function scalesOf(scales: usize, d: i32): usize {
  return scales + <usize>(d >> 5) * scaleStep;
}

// @ts-expect-error: decorator
@inline
function scoresOf(r: i32): usize {
  return SCORES_AT + <usize>r * SCORES;
}

/** Multiplies the weights of all queries (`bytes` bytes) by the scales of the tile's tokens. */
function scaleWeights(bytes: usize, scales: usize): void {
  for (let at: usize = 0; at < bytes; at += 16) {
    const scale = v128.load(scales + (at & (SCORES - 1)));
    v128.store(SCORES_AT + SCALED + at, f32x4.mul(v128.load(SCORES_AT + at), scale));
  }
}
