// Route table: finds the route for a path and method. Created by the app from the enabled routes.
import type { PathParameters } from "./route.ts";
import type { Route } from "./routes.ts";

/** Routes of one path, by HTTP method. */
export interface MatchedPath {
  readonly methods: ReadonlyMap<string, Route>;
  readonly parameters: PathParameters;
}

interface Pattern {
  readonly segments: readonly string[];
  readonly methods: ReadonlyMap<string, Route>;
}

const noParameters: PathParameters = {};

export class RouteTable {
  readonly #literal = new Map<string, ReadonlyMap<string, Route>>();
  readonly #patterns: readonly Pattern[];
  /** Paths of all routes, without duplicates. */
  readonly paths: readonly string[];

  constructor(routes: readonly Route[]) {
    const byPath = new Map<string, Map<string, Route>>();
    for (const route of routes) {
      const methods = byPath.get(route.path) ?? new Map<string, Route>();
      byPath.set(route.path, methods.set(route.method, route));
      // HEAD uses the GET route; the HTTP front end omits the body.
      if (route.method === "GET") methods.set("HEAD", route);
    }
    const patterns: Pattern[] = [];
    for (const [path, methods] of byPath) {
      if (path.includes("{")) patterns.push({ segments: path.split("/"), methods });
      else this.#literal.set(path, methods);
    }
    this.#patterns = patterns;
    this.paths = [...byPath.keys()];
  }

  /**
   * Returns the methods and parameters of a path; undefined if the path is not served. A literal path takes precedence over a
   * pattern that also matches. The pattern applies for methods that the literal path does not have.
   */
  match(path: string, method: string): MatchedPath | undefined {
    const methods = this.#literal.get(path);
    if (methods?.has(method)) return { methods, parameters: noParameters };
    const segments = path.split("/");
    for (const pattern of this.#patterns) {
      const parameters = parametersOf(pattern.segments, segments);
      if (parameters === null) continue;
      return {
        methods: methods === undefined ? pattern.methods : new Map([...pattern.methods, ...methods]),
        parameters,
      };
    }
    return methods === undefined ? undefined : { methods, parameters: noParameters };
  }
}

/** Returns the parameters in a path; null if the path does not match the pattern. Parameters are never empty. */
function parametersOf(pattern: readonly string[], segments: readonly string[]): PathParameters | null {
  if (pattern.length !== segments.length) return null;
  const parameters: Record<string, string> = {};
  for (const [i, expected] of pattern.entries()) {
    const segment = segments[i] as string;
    if (!expected.startsWith("{")) {
      if (segment !== expected) return null;
    } else if (segment === "") return null;
    else parameters[expected.slice(1, -1)] = decoded(segment);
  }
  return parameters;
}

/** Percent-decodes a path segment. A segment with an invalid encoding is returned unchanged. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
