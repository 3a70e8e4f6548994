// Gaps of a text stream: pauses that one client sees while the server also does other work.

/** Streams `tokens` tokens of the model "chat" from the server at `url`. Returns the pauses between the received pieces, in ms. */
export async function gapsOf(url: string, tokens: number): Promise<number[]> {
  const reply = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "chat",
      stream: true,
      max_tokens: tokens,
      ignore_eos: true,
      messages: "Tell a long story.",
    }),
  });
  if (!reply.ok || reply.body === null) throw new Error(await reply.text());
  const gaps: number[] = [];
  let lastMs = 0;
  for await (const _piece of reply.body as unknown as AsyncIterable<Uint8Array>) {
    const now = performance.now();
    if (lastMs > 0) gaps.push(now - lastMs);
    lastMs = now;
  }
  return gaps;
}
