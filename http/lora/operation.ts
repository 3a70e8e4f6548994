// OpenAPI description of the routes that load, list and unload LoRA adapters.
import { jsonAnswer, type Operation } from "../operation.ts";
import { listAdaptersQuery, loadAdapterSchema, unloadAdapterSchema } from "./request.ts";
import { loraAdapterListSchema, loraAdapterSchema } from "./response.ts";

const ONLY_IF_ALLOWED =
  "Served only if SERVICE_ALLOW_RUNTIME_LORA_UPDATING is 1, true, yes or on; otherwise 404. " +
  "Every client may call it, or with API keys every client that has one.";

/** Errors that every LoRA route may return. */
const ofModels = ["model_not_found", "lora_runtime_unavailable", "unsupported"] as const;
/** Additional errors of loading and unloading, which change the set of loaded adapters. */
const ofChanges = [
  ...ofModels,
  "not_found",
  "invalid_lora_name",
  "lora_generation_mismatch",
  "model_state_conflict",
  "mailbox_full",
  "model_loading",
  "draining",
  "timeout",
  "cancelled",
  "model_failed",
  "peer_gone",
] as const;

export const loadAdapterOperation: Operation = {
  id: "loadLoraAdapter",
  tag: "LoRA adapters",
  summary: "Load an adapter, or replace the adapter of an alias",
  description: `Continues if the client disconnects. The server loads one adapter at a time. Running requests keep the adapter they started with. ${ONLY_IF_ALLOWED}`,
  body: loadAdapterSchema,
  answers: jsonAnswer(loraAdapterSchema, "The adapter"),
  errors: [
    ...ofChanges,
    "invalid_lora_load_policy",
    "invalid_adapter_path",
    "invalid_adapter_file",
    "adapter_path_forbidden",
    "adapter_file_forbidden",
    "adapter_path_not_found",
    "adapter_file_not_found",
    "lora_adapter_not_found",
    "lora_adapter_already_loaded",
    "lora_rank_limit_exceeded",
    "lora_adapter_limit_exceeded",
    "lora_slot_space_exhausted",
    "lora_byte_limit_exceeded",
    "lora_alias_limit_exceeded",
    "adapter_file_changed",
    "lora_adapter_file_too_large",
    "invalid_lora_adapter",
    "lora_load_busy",
    "invalid_lora_runtime",
    "lora_load_task_failed",
    "adapter_storage_unavailable",
    "lora_storage_unavailable",
    "lora_device_load_failed",
  ],
};

export const unloadAdapterOperation: Operation = {
  id: "unloadLoraAdapter",
  tag: "LoRA adapters",
  summary: "Unload the adapter of an alias",
  description: `Running requests keep the adapter; its memory is freed when they end. ${ONLY_IF_ALLOWED}`,
  body: unloadAdapterSchema,
  answers: jsonAnswer(loraAdapterSchema, "The unloaded adapter"),
  errors: [...ofChanges, "lora_adapter_not_found"],
};

export const listAdaptersOperation: Operation = {
  id: "listLoraAdapters",
  tag: "LoRA adapters",
  summary: "List the adapters of a model with their memory and the limits",
  description: "Sources are shown only if SERVICE_ALLOW_RUNTIME_LORA_UPDATING is on.",
  query: listAdaptersQuery,
  answers: jsonAnswer(loraAdapterListSchema, "The adapters"),
  errors: [...ofModels],
};
