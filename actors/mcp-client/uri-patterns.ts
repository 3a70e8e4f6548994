// URI patterns: decides which resources of a server may be read. `*` in a pattern matches any text.

const dotSegment = /(?:^|[\\/]|%2f|%5c)(?:\.|%2e){1,2}(?:[\\/?#]|%2f|%5c|$)/i;

/**
 * Returns whether one of the patterns matches the whole URI. The run time is linear in the length of the URI for each part of a
 * pattern between two `*`.
 */
export function matchesAny(patterns: readonly string[], uri: string): boolean {
  // A server might resolve dot segments, and then read another resource than the one that was checked.
  if (dotSegment.test(uri)) return false;
  return patterns.some((pattern) => matches(pattern, uri));
}

function matches(pattern: string, uri: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  const last = rest.pop();
  if (last === undefined) return uri === pattern;
  if (!uri.startsWith(first)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = uri.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return uri.length - last.length >= at && uri.endsWith(last);
}
