// Owns what the API document says of loading, listing and unloading LoRA adapters.
import { jsonAnswer, type Operation } from "../operation.ts";
import { listAdaptersQuery, loadAdapterSchema, unloadAdapterSchema } from "./request.ts";
import { loraAdapterListSchema, loraAdapterSchema } from "./response.ts";

const ONLY_WHERE_ALLOWED =
  "Served only where SERVICE_ALLOW_RUNTIME_LORA_UPDATING is 1, true, yes or on; else there is nothing here (404). " +
  "Nobody is asked who they are: not to be shown to the world without a proxy that does.";

/** Whatever is asked of the adapters of a model. */
const ofModels = ["model_not_found", "lora_runtime_unavailable", "unsupported"] as const;
/** A change goes through the model. */
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
  summary: "Load an adapter, or have a name stand for another one",
  description: `Goes on where the client hangs up; one is loaded at a time on the whole server. Requests under way keep the adapter they began with. ${ONLY_WHERE_ALLOWED}`,
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
  summary: "Take the name of an adapter away",
  description: `Requests under way go on with it; its memory is free when they have ended. ${ONLY_WHERE_ALLOWED}`,
  body: unloadAdapterSchema,
  answers: jsonAnswer(loraAdapterSchema, "What the name stood for"),
  errors: [...ofChanges, "lora_adapter_not_found"],
};

export const listAdaptersOperation: Operation = {
  id: "listLoraAdapters",
  tag: "LoRA adapters",
  summary: "List the adapters of a model, what they hold, and what they may",
  description: "Where they came from is told only where SERVICE_ALLOW_RUNTIME_LORA_UPDATING is on.",
  query: listAdaptersQuery,
  answers: jsonAnswer(loraAdapterListSchema, "The adapters"),
  errors: [...ofModels],
};
