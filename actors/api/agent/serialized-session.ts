// Serialised session: the format in which a session is exported (GET /v1/sessions/{session_id}) and imported on another server
// (PUT). It contains the messages in chat completions format and the contents of the session's files.

import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { ChatMessage } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { type FileContent, type Files, fileIdPattern, fileLimits } from "./files.ts";
import { messageDigest } from "./message-digest.ts";
import type { Session, SessionMessage } from "./sessions.ts";

const MAX_MESSAGES = 50_000;
const MAX_ID_LENGTH = 256;
const MAX_NAME_LENGTH = 1024;
const MAX_MEDIA = 64;
const MAX_FILES = 256;
const count = z.int().min(0);

const message = z.strictObject({
  role: z.enum(["system", "user", "assistant", "tool"]),
  content: z.string(),
  name: z.string().max(MAX_ID_LENGTH).optional(),
  reasoning_content: z.string().optional(),
  tool_calls: z
    .array(
      z.strictObject({
        id: z.string().max(MAX_ID_LENGTH),
        type: z.literal("function"),
        function: z.strictObject({ name: z.string().max(MAX_ID_LENGTH), arguments: z.string() }),
      }),
    )
    .max(MAX_ID_LENGTH)
    .optional(),
  tool_call_id: z.string().max(MAX_ID_LENGTH).optional(),
  visible: count.meta({
    description:
      "Index of the message as the client sees it. Messages with the same index are one message for the client, such as the calls, results and texts of one response.",
  }),
});

const file = z.strictObject({
  id: z.string().regex(fileIdPattern),
  name: z.string().max(MAX_NAME_LENGTH),
  format: z.string().max(64).nullable(),
  mime_type: z.string().max(MAX_ID_LENGTH),
  bytes: count,
  created_at: count.meta({
    description: "Unix time in seconds. An imported file expires 30 minutes after its import.",
  }),
  purpose: z.enum(["user_data", "agent_output"]),
  source: z.strictObject({ tool: z.string().max(MAX_ID_LENGTH), round: count, turn: count }),
  text: z.string().optional(),
  data_base64: z.string().optional(),
});

export const serializedSessionSchema = z
  .strictObject({
    version: z.literal(1),
    turns: count.meta({ description: "Number of requests so far." }),
    messages: z.array(message).max(MAX_MESSAGES),
    images: z.array(z.string()).max(MAX_MEDIA).meta({ description: "PNG images that tools made, in base64." }),
    videos: z
      .array(
        z.strictObject({
          fps: z.number(),
          frames: z.array(z.string()),
          total_num_frames: count,
          sampled_indices: z.array(count),
        }),
      )
      .max(MAX_MEDIA),
    files: z
      .array(file)
      .max(MAX_FILES)
      .meta({ description: "Files of the session. Their contents are at most 32 MiB together." }),
  })
  .meta({ id: "SerializedSession" });

export type SerializedSession = z.output<typeof serializedSessionSchema>;

/** Maximum total size in bytes of the file contents in a serialised session. Files that do not fit are omitted. */
const MAX_CONTENT_BYTES = 32 * 2 ** 20;

/** Returns a session in serialised form. Includes the contents of its files that still exist, newest first. */
export async function serializedSession(session: Session, files: Files): Promise<SerializedSession> {
  const { messages, images, videos, turns } = session;
  const contents: SerializedSession["files"] = [];
  let room = MAX_CONTENT_BYTES;
  for (const id of [...session.files].reverse()) {
    const found = await files.content(id);
    if (found?.kind !== "content" || found.file.bytes > room) continue;
    room -= found.file.bytes;
    contents.push(await serializedFile(found));
  }
  return {
    version: 1,
    turns,
    messages: messages.map(wireMessage),
    images: [...images],
    videos: videos.map((video) => ({
      ...video,
      frames: [...video.frames],
      sampled_indices: [...video.sampled_indices],
    })),
    files: contents,
  };
}

async function serializedFile(
  found: Extract<FileContent, { readonly kind: "content" }>,
): Promise<SerializedSession["files"][number]> {
  const { id, name, format, mimeType, bytes, createdAt, purpose, source, isText } = found.file;
  const content = await readFile(found.path);
  const body = isText ? { text: content.toString("utf8") } : { data_base64: content.toString("base64") };
  return { id, name, format, mime_type: mimeType, bytes, created_at: createdAt, purpose, source, ...body };
}

function wireMessage({ message: said, visible }: SessionMessage): SerializedSession["messages"][number] {
  const { role, content, name, reasoning, toolCalls, toolCallId } = said;
  return {
    role: role as SerializedSession["messages"][number]["role"],
    content,
    ...(name === undefined ? {} : { name }),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
    ...(toolCalls === undefined
      ? {}
      : {
          tool_calls: toolCalls.map((call) => ({
            id: call.id,
            type: "function" as const,
            function: { name: call.name, arguments: call.arguments },
          })),
        }),
    ...(toolCallId === undefined ? {} : { tool_call_id: toolCallId }),
    visible,
  };
}

/**
 * Converts a serialised session to a session, and stores its files. An existing file with the same id is not replaced.
 * Throws invalid_value, storage_unavailable.
 */
export async function importedSession(
  id: string,
  client: string,
  body: SerializedSession,
  files: Files,
): Promise<Session> {
  const messages = body.messages.map(sessionMessage);
  const unordered = messages.findIndex(
    ({ visible }, i) => i > 0 && ![0, 1].includes(visible - (messages[i - 1]?.visible ?? 0)),
  );
  if (unordered >= 0 || (messages[0]?.visible ?? 0) !== 0) {
    const at = Math.max(unordered, 0);
    throw new ServerError(
      "invalid_value",
      `messages[${at}].visible: expected indices that begin with 0 and grow by at most 1`,
      {
        param: `messages[${at}].visible`,
      },
    );
  }
  for (const item of body.files) await importFile(item, id, client, files);
  return {
    id,
    turns: body.turns,
    digests: digestsOf(messages),
    messages,
    images: body.images,
    videos: body.videos,
    files: body.files.map((item) => item.id),
    approvesAll: false,
  };
}

async function importFile(
  item: SerializedSession["files"][number],
  session: string,
  client: string,
  files: Files,
): Promise<void> {
  if ((await files.find(item.id)) !== null) return;
  const content = item.text !== undefined ? Buffer.from(item.text) : Buffer.from(item.data_base64 ?? "", "base64");
  if (content.length > fileLimits.maxFileBytes) {
    throw new ServerError("invalid_value", `expected files of at most ${fileLimits.maxFileBytes} bytes`, {
      param: "files",
    });
  }
  const staged = `import-${randomBytes(16).toString("hex")}`;
  await writeFile(join(files.stagingFolder, staged), content, { flag: "wx", mode: 0o600 });
  const { id, name, format, purpose, source } = item;
  await files.add({ id, name, format, purpose, source, session, client, staged, failure: null });
}

function sessionMessage({
  role,
  content,
  name,
  reasoning_content,
  tool_calls,
  tool_call_id,
  visible,
}: SerializedSession["messages"][number]): SessionMessage {
  const said: ChatMessage = {
    role,
    content,
    ...(name === undefined ? {} : { name }),
    ...(reasoning_content === undefined ? {} : { reasoning: reasoning_content }),
    ...(tool_calls === undefined
      ? {}
      : {
          toolCalls: tool_calls.map((call) => ({
            id: call.id,
            name: call.function.name,
            arguments: call.function.arguments,
          })),
        }),
    ...(tool_call_id === undefined ? {} : { toolCallId: tool_call_id }),
  };
  return { message: said, visible };
}

/**
 * Returns the digests of the messages as the client sees them. Messages with the same `visible` index form one visible message,
 * which has the texts of the assistant's messages and the calls without a result (the client runs these). The last visible
 * message gets no digest if it is incomplete: it ends with a tool result and has no client call.
 */
function digestsOf(messages: readonly SessionMessage[]): readonly string[] {
  const groups: ChatMessage[][] = [];
  for (const { message: said, visible } of messages) {
    const group = groups[visible];
    if (group === undefined) groups[visible] = [said];
    else group.push(said);
  }
  return groups.flatMap((group, i) => {
    const [only] = group;
    if (group.length === 1 && only !== undefined) return [messageDigest(only)];
    if (i === groups.length - 1 && group.at(-1)?.role === "tool" && clientCalls(group).length === 0) return [];
    const content = group.map(({ role, content: text }) => (role === "assistant" ? text : "")).join("");
    const toolCalls = clientCalls(group);
    return [messageDigest({ role: "assistant", content, ...(toolCalls.length === 0 ? {} : { toolCalls }) })];
  });
}

function clientCalls(group: readonly ChatMessage[]): NonNullable<ChatMessage["toolCalls"]> {
  const answered = new Set(group.map(({ toolCallId }) => toolCallId));
  return group.flatMap(({ toolCalls = [] }) => toolCalls.filter(({ id }) => !answered.has(id)));
}
