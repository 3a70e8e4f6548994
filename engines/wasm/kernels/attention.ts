// Owns attention over the pages of the KV cache, a KV head and a tile of tokens at a time. Many queries share a tile: then
// its keys and values become floats once for all of them; few multiply straight from the page. The softmax goes along from
// tile to tile, rescaling what it has whenever a larger score turns up. A query here is one head of one row.
import {
  headBytes, keyEightBytes, keysAt, keyScalesAt, largestLane, scaleStride, unpackKeys, unpackValues, valueEightBytes,
  valuesAt, valueScalesAt,
} from "./attention-pages";
import { multiplyRows, setRow } from "./attention-tiles";
import { exponential } from "./exponential";
import { BF16, F16, F32 } from "./types";

export { kvPageBytes } from "./attention-pages";
export { kvWrite } from "./attention-write";

/**
 * Most tokens of a tile, and most floats of its keys, or of its values: both stay in the first-level cache. A tile has 8
 * tokens at least, so heads can be no longer than 512.
 */
const TILE_TOKENS: i32 = 32;
const TILE_FLOATS: i32 = 4096;
/** More queries than this are worth unpacking a tile for. */
const FEW_QUERIES: i32 = 8;
/** Bytes of a tile's scores of one query. */
const SCORES: usize = 128;
/** Floats behind a head's values in what attend() writes: the largest score, the sum of weights, padding. */
const TAIL: i32 = 4;
/** Less than every score. */
const NOTHING: f32 = -1e30;
/** A weight below e^this of the largest counts as none: no sum would show it, and products with it are slow. */
const WEIGHTLESS: f32 = -60;

// Scratch of a call, in the first 64 KiB of the memory, which the host leaves to the kernels: a tile's keys and values,
// four queries' scores, and these once more times a scale, then the tables of rows of the two products.
const KEYS: usize = (__heap_base + 15) & ~15;
// Products of a tile cut short read behind it.
const VALUES: usize = KEYS + TILE_FLOATS * 4 + SCORES;
const SCORES_AT: usize = VALUES + TILE_FLOATS * 4;
const SCALED: usize = 4 * SCORES;
const SCORING: usize = SCORES_AT + 2 * SCALED;
const SUMMING: usize = SCORING + 64;

// The call under way: set by attend(), meaningless between calls. Steps are in bytes.
let sharing: i32 = 0;
let headFloats: i32 = 0;
let scoreScale: f32 = 0;
let queryCount: i32 = 0;
let queries: usize = 0;
let queryRow: usize = 0;
let queryStep: usize = 0;
let records: usize = 0;
let recordRow: usize = 0;
let recordStep: usize = 0;
let scaleStep: usize = 0;

// The tile under way; row i sees its first seenByFirst + i tokens.
let keys: usize = 0;
let keyEight: usize = 0;
let keyScales: usize = 0;
let values: usize = 0;
let valueEight: usize = 0;
let valueScales: usize = 0;
let seenByFirst: i32 = 0;

export function attend(
  kvType: i32, pages: usize, pageCount: i32, blockTokens: i32, q: usize, qStride: i32, n: i32, firstPosition: i32,
  heads: i32, kvHeads: i32, headLength: i32, scale: f32, out: usize,
): void {
  clear(n * heads, headLength, out);
  sharing = heads / kvHeads;
  headFloats = headLength;
  scoreScale = scale;
  queryCount = n * sharing;
  queryRow = <usize>qStride << 2;
  queryStep = <usize>headLength << 2;
  recordStep = <usize>(headLength + TAIL) << 2;
  recordRow = <usize>heads * recordStep;
  scaleStep = scaleStride(blockTokens);
  const partBytes = <usize>headBytes(kvType, headLength, blockTokens);
  const tileTokens = min(TILE_TOKENS, (TILE_FLOATS / headLength) & ~7);
  for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
    queries = q + <usize>(kvHead * sharing) * queryStep;
    records = out + <usize>(kvHead * sharing) * recordStep;
    for (let page = 0; page < pageCount; page++) {
      const part = <usize>load<i32>(pages + (<usize>page << 3)) + <usize>kvHead * partBytes;
      const position = load<i32>(pages + (<usize>page << 3), 4);
      // Behind the last row's own token nothing has been written.
      const written = min(blockTokens, firstPosition + n - position);
      for (let first = 0; first < written; first += tileTokens) {
        seenByFirst = firstPosition + 1 - position - first;
        attendTile(kvType, part, first, min(tileTokens, written - first), blockTokens, tileTokens);
      }
    }
  }
}

function clear(count: i32, headLength: i32, out: usize): void {
  const bytes = <usize>(headLength + TAIL) << 2;
  memory.fill(out, 0, <usize>count * bytes);
  for (let i = 0; i < count; i++) store<f32>(out + <usize>i * bytes + (<usize>headLength << 2), NOTHING);
}

/** All queries over `tokens` tokens of a page, from `first` on. */
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

/** All queries over the tile, as many at a time as share the reading of it. */
function attendQueries<T>(tokens: i32): void {
  // Rows before the tile's first token see none of it.
  let query = max(0, 1 - seenByFirst) * sharing;
  while (query < queryCount) {
    const left = queryCount - query;
    // Two threes are quicker than a four and a two.
    const count = left == 4 || left > 6 ? 4 : min(left, 3);
    // The last of them sees most.
    attendSome<T>(query, count, min(tokens, seenByFirst + (query + count - 1) / sharing));
    query += count;
  }
}

/** Up to four queries over the tile's first `seen` tokens. */
function attendSome<T>(query: i32, count: i32, seen: i32): void {
  const vectors = (seen + 3) >> 2;
  const group = groupFloats<T>();
  if (sizeof<T>() == 1) memory.fill(SCORES_AT, 0, <usize>count * SCORES);
  for (let r = 0; r < count; r++) setRow(SCORING, r, queryAt(query + r), scoresOf(r), 0);
  for (let d = 0; d < headFloats; d += group) {
    const from = keys + <usize>(d * 8) * sizeof<T>();
    const depth = <usize>min(group, headFloats - d);
    multiplyRows<T>(count, true, SCORING, <usize>d << 2, 0, depth, from, keyEight, vectors, scalesOf(keyScales, d));
  }
  for (let r = 0; r < count; r++) {
    const record = recordAt(query + r);
    const rescale = weigh(scoresOf(r), vectors, query + r, record);
    setRow(SUMMING, r, sizeof<T>() == 1 ? scoresOf(r) + SCALED : scoresOf(r), record, rescale);
  }
  for (let d = 0; d < headFloats; d += group) {
    if (sizeof<T>() == 1) scaleWeights(<usize>count * SCORES, scalesOf(valueScales, d));
    const from = values + <usize>(d >> 3) * valueEight;
    const width = min(group, headFloats - d) >> 2;
    multiplyRows<T>(count, false, SUMMING, 0, <usize>d << 2, <usize>seen, from, valueEight, width, 0);
  }
}

/** Floats of a head with one scale: all where T needs none. */
// @ts-ignore: decorator
@inline
function groupFloats<T>(): i32 {
  return sizeof<T>() == 1 ? 32 : headFloats;
}

/** A tile's scales for the group that dimension d begins. */
// @ts-ignore: decorator
@inline
function scalesOf(scales: usize, d: i32): usize {
  return scales + <usize>(d >> 5) * scaleStep;
}

// @ts-ignore: decorator
@inline
function queryAt(query: i32): usize {
  return queries + <usize>(query / sharing) * queryRow + <usize>(query % sharing) * queryStep;
}

// @ts-ignore: decorator
@inline
function recordAt(query: i32): usize {
  return records + <usize>(query / sharing) * recordRow + <usize>(query % sharing) * recordStep;
}

// @ts-ignore: decorator
@inline
function scoresOf(r: i32): usize {
  return SCORES_AT + <usize>r * SCORES;
}

/** All queries' weights, `bytes` bytes, times the scales of the tile's tokens. */
function scaleWeights(bytes: usize, scales: usize): void {
  for (let at: usize = 0; at < bytes; at += 16) {
    const scale = v128.load(scales + (at & (SCORES - 1)));
    v128.store(SCORES_AT + SCALED + at, f32x4.mul(v128.load(SCORES_AT + at), scale));
  }
}

/**
 * Turns one query's scores of a tile into weights, those of tokens it does not see into 0, and brings the largest score
 * and the sum of weights of its record up to date. Returns what the record's values must be multiplied by.
 */
function weigh(scores: usize, vectors: i32, query: i32, record: usize): f32 {
  const tail = record + queryStep;
  const end = scores + (<usize>vectors << 4);
  const nothing = f32x4.splat(NOTHING);
  const factor = f32x4.splat(scoreScale);
  const visible = i32x4.splat(seenByFirst + query / sharing);
  let token = i32x4(0, 1, 2, 3);
  let largest = v128.load32_splat(tail);
  const before = largest;
  for (let at = scores; at < end; at += 16) {
    const score = v128.bitselect(f32x4.mul(v128.load(at), factor), nothing, i32x4.lt_s(token, visible));
    v128.store(at, score);
    largest = f32x4.pmax(largest, score);
    token = i32x4.add(token, i32x4.splat(4));
  }
  const peak = f32x4.splat(largestLane(largest));
  let sum = f32x4.splat(0);
  for (let at = scores; at < end; at += 16) {
    const weight = weightOf(f32x4.sub(v128.load(at), peak));
    v128.store(at, weight);
    sum = f32x4.add(sum, weight);
  }
  const rescale = f32x4.extract_lane(weightOf(f32x4.sub(before, peak)), 0);
  store<f32>(tail, f32x4.extract_lane(peak, 0));
  store<f32>(tail, load<f32>(tail, 4) * rescale + sumOfLanes(sum), 4);
  return rescale;
}

// @ts-ignore: decorator
@inline
function weightOf(distance: v128): v128 {
  return v128.and(exponential(distance), f32x4.gt(distance, f32x4.splat(WEIGHTLESS)));
}

// @ts-ignore: decorator
@inline
function sumOfLanes(x: v128): f32 {
  const pairs = f32x4.add(x, i64x2.shuffle(x, x, 1, 0));
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
}

export function mergeAttention(
  partials: usize, partBytes: i32, parts: i32, n: i32, heads: i32, headLength: i32, out: usize, stride: i32,
): void {
  const valueBytes = <usize>headLength << 2;
  for (let i = 0; i < n; i++) {
    let to = out + (<usize>(i * stride) << 2);
    for (let head = 0; head < heads; head++) {
      mergeHead(partials, <usize>partBytes, parts, valueBytes, to);
      partials += valueBytes + (TAIL << 2);
      to += valueBytes;
    }
  }
}

function mergeHead(partial: usize, partBytes: usize, parts: i32, valueBytes: usize, out: usize): void {
  const end = partial + <usize>parts * partBytes;
  let peak = NOTHING;
  for (let part = partial; part < end; part += partBytes) peak = max(peak, load<f32>(part + valueBytes));
  let sum: f32 = 0;
  for (let part = partial; part < end; part += partBytes) {
    const weight = f32x4.extract_lane(weightOf(f32x4.splat(load<f32>(part + valueBytes) - peak)), 0);
    // A part's own place for padding keeps its weight.
    store<f32>(part + valueBytes, weight, 8);
    sum += weight * load<f32>(part + valueBytes, 4);
  }
  const inverse: f32 = sum > 0 ? 1 / sum : 0;
  for (let at: usize = 0; at < valueBytes; at += 16) {
    let total = f32x4.splat(0);
    for (let part = partial; part < end; part += partBytes) {
      total = f32x4.add(total, f32x4.mul(v128.load(part + at), v128.load32_splat(part + valueBytes, 8)));
    }
    v128.store(out + at, f32x4.mul(total, f32x4.splat(inverse)));
  }
}
