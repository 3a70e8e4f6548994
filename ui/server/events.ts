// Parser of server-sent events in a response body.

export interface ServerEvent {
  readonly name: string;
  /** Data of the event, parsed from JSON. */
  readonly data: Readonly<Record<string, unknown>>;
}

/** Yields lists of events; the events of a list have arrived together. Throws if the connection breaks. */
export async function* eventsOf(response: Response): AsyncGenerator<readonly ServerEvent[]> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  let rest = "";
  try {
    for (;;) {
      const { done, value = "" } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop() ?? "";
      const events = blocks.flatMap(parsed);
      if (events.length > 0) yield events;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Returns the events in a text that consists of complete events. */
export function eventsIn(text: string): readonly ServerEvent[] {
  return text.split("\n\n").flatMap(parsed);
}

function parsed(block: string): readonly ServerEvent[] {
  let [name, data] = ["", ""];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice("event: ".length);
    else if (line.startsWith("data: ")) data += line.slice("data: ".length);
  }
  if (data === "" || data === "[DONE]") return [];
  return [{ name, data: JSON.parse(data) as ServerEvent["data"] }];
}
