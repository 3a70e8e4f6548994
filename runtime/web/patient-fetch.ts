// Patient fetch: fetch without the time limits of Node's own fetch, which ends a request after 300 s without a response. The
// library is loaded with the first request.

let patient: Promise<typeof fetch> | null = null;

/** Sends a request. Only `init.signal` limits the time. */
export async function patientFetch(url: string | URL, init: RequestInit): Promise<Response> {
  patient ??= import("./undici.ts").then(({ Agent, fetch: send }) => {
    const dispatcher = new Agent({ headersTimeout: 0, bodyTimeout: 0 });
    // The casts are safe: Node's fetch is built from this library, which has its own type declarations.
    return ((to: string | URL, given: RequestInit) =>
      send(to, { ...given, dispatcher } as object) as unknown as Promise<Response>) as typeof fetch;
  });
  return await (await patient)(url, init);
}
