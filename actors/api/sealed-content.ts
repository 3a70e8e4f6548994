// Sealed content: the prompt, grammar and tools of a request, serialised to bytes, which move between threads without a copy.
import { createHash } from "node:crypto";
import { deserialize, serialize } from "node:v8";
import type { GenerateRequest, RequestContent, SealedContent } from "../../engines/generation.ts";
import type { Transferable } from "../../runtime/endpoint/endpoint.ts";

export function sealContent({ prompt, grammar, tools }: RequestContent): SealedContent {
  // The bytes are copied to a separate buffer, which can be transferred to another thread.
  const bytes = new Uint8Array(serialize({ prompt, grammar, tools } satisfies RequestContent));
  return { kind: "sealed", isChat: prompt.kind === "chat", bytes, demand: demandOf({ grammar, tools }) };
}

/** Returns a digest of the constraints on the output (grammar, tool calls); null: no constraints. */
export function demandOf({ grammar, tools }: Pick<RequestContent, "grammar" | "tools">): string | null {
  if (grammar === null && tools === null) return null;
  return createHash("sha256")
    .update(JSON.stringify([grammar, tools]))
    .digest("base64");
}

export function openContent({ bytes }: SealedContent): RequestContent {
  return deserialize(bytes) as RequestContent;
}

/** Returns the buffers to transfer when a request is sent to another thread: its sealed content. */
export function movedWith({ prompt }: Pick<GenerateRequest, "prompt">): Transferable[] {
  return prompt.kind === "sealed" ? [prompt.bytes.buffer as ArrayBuffer] : [];
}
