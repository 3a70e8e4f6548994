// OpenAPI description of the files routes.
import { z } from "zod";
import { jsonAnswer, type Operation } from "../operation.ts";
import { filesQuery, uploadForm } from "./query.ts";
import { containerFileListSchema, containerFileSchema, deletedFileSchema, fileListSchema, fileSchema } from "./wire.ts";

const file_id = z.string().meta({ description: "File id." });
const container_id = z
  .string()
  .meta({ description: "Container id: `cntr_` and the id of a session. Its files are those of the session." });
const filePath = z.strictObject({ file_id });
const containerPath = z.strictObject({ container_id });
const containerFilePath = z.strictObject({ container_id, file_id });

const contentAnswers = {
  200: [
    {
      contentType: "*/*",
      description:
        "The content, with its own content type. Types that a browser could run are sent as attachments, never inline",
    },
  ],
};

export const uploadFileOperation: Operation = {
  id: "uploadFile",
  tag: "Agents",
  summary: "Upload a file",
  description:
    "The file can be named in messages by its id. It expires 30 minutes after its creation; at most 4096 files are kept. With the version header of the messages protocol the answer has that protocol's shape, and purpose may be left out.",
  body: uploadForm,
  takesForm: true,
  answers: jsonAnswer(fileSchema, "The stored file"),
  errors: ["unsupported", "queue_full", "storage_unavailable", "peer_gone"],
};

export const listFilesOperation: Operation = {
  id: "listFiles",
  tag: "Agents",
  summary: "List the stored files",
  query: filesQuery,
  answers: jsonAnswer(fileListSchema, "A page of files"),
  errors: ["unsupported", "storage_unavailable", "peer_gone"],
};

export const retrieveFileOperation: Operation = {
  id: "retrieveFile",
  tag: "Agents",
  summary: "Get the metadata of a file",
  path: filePath,
  answers: jsonAnswer(fileSchema, "The file"),
  errors: ["file_not_found", "unsupported", "storage_unavailable", "peer_gone"],
};

export const deleteFileOperation: Operation = {
  id: "deleteFile",
  tag: "Agents",
  summary: "Delete a file",
  path: filePath,
  answers: jsonAnswer(deletedFileSchema, "The file is deleted"),
  errors: ["file_not_found", "unsupported", "storage_unavailable", "peer_gone"],
};

export const fileContentOperation: Operation = {
  id: "downloadFile",
  tag: "Agents",
  summary: "Get the content of a file",
  path: filePath,
  answers: contentAnswers,
  errors: ["file_not_found", "file_elided", "file_not_produced", "unsupported", "storage_unavailable", "peer_gone"],
};

export const listContainerFilesOperation: Operation = {
  id: "listContainerFiles",
  tag: "Agents",
  summary: "List the files of a container",
  path: containerPath,
  query: filesQuery,
  answers: jsonAnswer(containerFileListSchema, "A page of files"),
  errors: ["not_found", "unsupported", "storage_unavailable", "peer_gone"],
};

export const retrieveContainerFileOperation: Operation = {
  id: "retrieveContainerFile",
  tag: "Agents",
  summary: "Get the metadata of a container's file",
  path: containerFilePath,
  answers: jsonAnswer(containerFileSchema, "The file"),
  errors: ["not_found", "file_not_found", "unsupported", "storage_unavailable", "peer_gone"],
};

export const containerFileContentOperation: Operation = {
  id: "downloadContainerFile",
  tag: "Agents",
  summary: "Get the content of a container's file",
  description: "The same as GET /v1/files/{file_id}/content.",
  path: containerFilePath,
  answers: contentAnswers,
  errors: ["file_not_found", "file_elided", "file_not_produced", "unsupported", "storage_unavailable", "peer_gone"],
};
