// Collections: the classes of mnemonist that this program uses. Each is required by its own path, because the ESM entry of the
// package loads all of its classes (25 ms and 0.7 MB a thread instead of 6 ms and 0.1 MB).
import { createRequire } from "node:module";
import type defaultMap from "mnemonist/default-map";
import type lruMap from "mnemonist/lru-map-with-delete";

const require = createRequire(import.meta.url);

/** A map whose get() makes a missing value. */
export type DefaultMap<Key, Value> = defaultMap.default<Key, Value>;
export const DefaultMap: typeof defaultMap.default = require("mnemonist/default-map");

/** A map of bounded size: a new key displaces the key that was set or read by get() longest ago; peek() does not count. */
export type LruMap<Key, Value> = lruMap.default<Key, Value>;
export const LruMap: typeof lruMap.default = require("mnemonist/lru-map-with-delete");
