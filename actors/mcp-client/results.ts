// Converts results of MCP servers to results of tool calls: text for the model, and images.
import type { CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult } from "@modelcontextprotocol/client";
import type { ServerToolResult } from "../api/agent/server-tools.ts";
import { maxResultBytes } from "../api/agent/tools.ts";
import { boundedText } from "../tools/bounded-text.ts";

/** Maximum number of base64 characters of all images of a result. Images beyond the limit are replaced by a description. */
const MAX_IMAGE_CHARACTERS = 8 * 2 ** 20;
/** Bytes of a result's size limit that are reserved for the note with which boundedText replaces omitted text. */
const NOTE_BYTES = 64;
/** Beginning of every PNG file in base64, without the incomplete last character. */
const pngBeginning = "iVBORw0KGg";
const base64 = /^[A-Za-z0-9+/]*={0,2}$/;

export function toolResult(result: CallToolResult): ServerToolResult {
  const { content, structuredContent, isError } = result;
  const { texts, images } = readContent(content);
  const hasText = content.some(({ type }) => type === "text");
  const structured = hasText || structuredContent === undefined ? [] : [JSON.stringify(structuredContent)];
  return {
    ...textResult([...texts, ...structured].join("\n")),
    images,
    status: isError === true ? "error" : "success",
  };
}

export function resourceResult({ contents }: ReadResourceResult): ServerToolResult {
  const texts = contents.map((part) =>
    "text" in part ? part.text : describe("resource", part.mimeType, part.blob, part.uri),
  );
  return textResult(texts.join("\n"));
}

export function promptResult({ description, messages }: GetPromptResult): ServerToolResult {
  const read = messages.map(({ role, content }) => ({ role, ...readContent([content]) }));
  const texts = read.map(({ role, texts: [text = ""] }) => `${role}: ${text}`);
  const heading = description === undefined ? [] : [description];
  return { ...textResult([...heading, ...texts].join("\n\n")), images: read.flatMap(({ images }) => images) };
}

export function jsonResult(value: unknown): ServerToolResult {
  return textResult(JSON.stringify(value));
}

function textResult(text: string): ServerToolResult {
  return { status: "success", content: boundedText(text, maxResultBytes - NOTE_BYTES), images: [] };
}

function readContent(content: readonly ContentBlock[]): { readonly texts: string[]; readonly images: string[] } {
  const texts: string[] = [];
  const images: string[] = [];
  let room = MAX_IMAGE_CHARACTERS;
  for (const part of content) {
    if (part.type === "image" && isPng(part.data) && part.data.length <= room) {
      images.push(part.data);
      room -= part.data.length;
      texts.push("[image]");
    } else texts.push(textOf(part));
  }
  return { texts, images };
}

function textOf(part: ContentBlock): string {
  switch (part.type) {
    case "text":
      return part.text;
    case "image":
      return describe("image", part.mimeType, part.data);
    case "audio":
      return describe("audio", part.mimeType, part.data);
    case "resource_link":
      return `[resource ${part.name}: ${part.uri}${part.description === undefined ? "" : `, ${part.description}`}]`;
    case "resource":
      return "text" in part.resource
        ? `[resource ${part.resource.uri}]\n${part.resource.text}`
        : describe("resource", part.resource.mimeType, part.resource.blob, part.resource.uri);
  }
}

function isPng(data: string): boolean {
  return data.startsWith(pngBeginning) && base64.test(data);
}

/** Returns a description of binary data that models cannot read as text. */
function describe(kind: string, type: string | undefined, data: string, uri?: string): string {
  const bytes = Math.floor((data.length * 3) / 4);
  return `[${[kind, uri, type, `${bytes} bytes`].filter((word) => word !== undefined).join(" ")}: not shown]`;
}
