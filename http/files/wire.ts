// Wire formats of stored files, with their schemas: file objects of OpenAI's protocol, files of a container, and file objects
// of the messages protocol.
import { z } from "zod";
import type { StoredFile } from "../../actors/api/agent/files.ts";

const integer = z.int().min(0);
const purpose = z.enum(["user_data", "agent_output"]);
const source = z.strictObject({ tool: z.string(), round: integer, turn: integer });

export const fileSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("file"),
    bytes: integer,
    created_at: integer.meta({ description: "Unix time in seconds." }),
    expires_at: integer.meta({ description: "Unix time in seconds." }),
    filename: z.string(),
    purpose,
    status: z.literal("processed"),
    format: z.string().nullable(),
    mime_type: z.string(),
    source,
  })
  .meta({ id: "File" });

export const fileListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(fileSchema),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
  has_more: z.boolean(),
});

export const deletedFileSchema = z.strictObject({
  id: z.string(),
  object: z.literal("file"),
  deleted: z.literal(true),
});

export const containerFileSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("container.file"),
    bytes: integer,
    created_at: integer,
    container_id: z.string(),
    filename: z.string(),
    path: z.string(),
    format: z.string().nullable(),
    mime_type: z.string(),
    source,
  })
  .meta({ id: "ContainerFile" });

export const containerFileListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(containerFileSchema),
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
  has_more: z.boolean(),
});

type WireFile = z.output<typeof fileSchema>;

export function wireFile(file: StoredFile, lifetimeSeconds: number): WireFile {
  const { id, name, bytes, createdAt, format, mimeType } = file;
  return {
    id,
    object: "file",
    bytes,
    created_at: createdAt,
    expires_at: createdAt + lifetimeSeconds,
    filename: name,
    purpose: file.purpose,
    status: "processed",
    format,
    mime_type: mimeType,
    source: file.source,
  };
}

export function wireContainerFile(file: StoredFile, containerId: string): z.output<typeof containerFileSchema> {
  const { id, name, bytes, createdAt, format, mimeType } = file;
  return {
    id,
    object: "container.file",
    bytes,
    created_at: createdAt,
    container_id: containerId,
    filename: name,
    path: `/work/${name}`,
    format,
    mime_type: mimeType,
    source: file.source,
  };
}

/** Builds the file object of the messages protocol. */
export function vendorFile({ id, name, mimeType, bytes, createdAt, purpose: kind }: StoredFile): object {
  return {
    id,
    type: "file",
    filename: name,
    mime_type: mimeType,
    size_bytes: bytes,
    created_at: new Date(createdAt * 1000).toISOString(),
    downloadable: kind === "agent_output",
  };
}
