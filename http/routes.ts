// Routes: one entry per endpoint, with its handler and its description for the API document. route-table.ts looks up the entry
// for a request.

import { decideApproval, listApprovals } from "./agent/approvals-route.ts";
import { decideApprovalOperation, listApprovalsOperation, listToolsOperation } from "./agent/operation.ts";
import { listTools } from "./agent/tools-route.ts";
import {
  createSpeechOperation,
  listVoicesOperation,
  transcribeOperation,
  translateOperation,
} from "./audio/operation.ts";
import { createSpeech, listVoices } from "./audio/speech-route.ts";
import { transcribeAudio, translateAudio } from "./audio/transcription-route.ts";
import {
  applyCalibrationOperation,
  calibrationStatusOperation,
  startCalibrationOperation,
} from "./calibration/operation.ts";
import { applyCalibration, calibrationStatus, startCalibration } from "./calibration/route.ts";
import { chatOperation } from "./chat/operation.ts";
import { chatCompletions } from "./chat/route.ts";
import { detokenizeOperation, tokenizeOperation } from "./chat/tokens/operation.ts";
import { detokenize, tokenize } from "./chat/tokens/route.ts";
import { completionOperation } from "./completions/operation.ts";
import { completions } from "./completions/route.ts";
import type { RouteHandler } from "./context.ts";
import { docsAssetOperation, docsOperation } from "./docs/operation.ts";
import { docs, docsAsset } from "./docs/route.ts";
import { embeddingOperation } from "./embeddings/operation.ts";
import { embeddings } from "./embeddings/route.ts";
import { commonErrors } from "./errors.ts";
import {
  containerFileContentOperation,
  deleteFileOperation,
  fileContentOperation,
  listContainerFilesOperation,
  listFilesOperation,
  retrieveContainerFileOperation,
  retrieveFileOperation,
  uploadFileOperation,
} from "./files/operation.ts";
import {
  containerFileContent,
  deleteFile,
  fileContent,
  listContainerFiles,
  listFiles,
  retrieveContainerFile,
  retrieveFile,
  uploadFile,
} from "./files/route.ts";
import { healthOperation, readyOperation, rootOperation } from "./health/operation.ts";
import { health, ready, root } from "./health/route.ts";
import { imageOperation } from "./images/operation.ts";
import { images } from "./images/route.ts";
import { loraErrors, loraListErrors } from "./lora/errors.ts";
import { listAdaptersOperation, loadAdapterOperation, unloadAdapterOperation } from "./lora/operation.ts";
import { listAdapters, loadAdapter, unloadAdapter } from "./lora/route.ts";
import { rpcErrors } from "./mcp/errors.ts";
import { mcpOperation } from "./mcp/operation.ts";
import { messagesErrors } from "./messages/errors.ts";
import { countTokensOperation, messagesOperation } from "./messages/operation.ts";
import { countTokens, messages } from "./messages/route.ts";
import { listDownloads, listDownloadsOperation } from "./models/downloads.ts";
import { modelFile } from "./models/file-route.ts";
import {
  managementErrors,
  reloadModelOperation,
  showStatusOperation,
  unloadModelOperation,
} from "./models/management-operation.ts";
import { modelStatus, reloadModel, unloadModel } from "./models/management-route.ts";
import { listModelsOperation, modelFileOperation, retrieveModelOperation } from "./models/operation.ts";
import { requantize, requantizeOperation } from "./models/requantization.ts";
import { listModels, retrieveModel } from "./models/route.ts";
import { tuneModelOperation } from "./models/tune-operation.ts";
import { tuneModel } from "./models/tune-route.ts";
import { listWebModels, listWebModelsOperation, webModelFile, webModelFileOperation } from "./models/web-models.ts";
import { metricsOperation } from "./observe/metrics/operation.ts";
import { metrics } from "./observe/metrics/route.ts";
import { embed, oneEmbedding } from "./ollama/embed.ts";
import { ollamaErrors } from "./ollama/errors.ts";
import { deleteOperation, pullOperation } from "./ollama/library/operation.ts";
import { pull, remove } from "./ollama/library/route.ts";
import { running, show, tags, version } from "./ollama/models.ts";
import {
  embedOperation,
  generateOperation,
  chatOperation as ollamaChatOperation,
  oneEmbeddingOperation,
  runningOperation,
  showOperation,
  tagsOperation,
  versionOperation,
} from "./ollama/operation.ts";
import { ollamaChat, ollamaGenerate } from "./ollama/route.ts";
import { openApiOperation } from "./openapi/operation.ts";
import { openApi } from "./openapi/route.ts";
import { rerankOperation, shortRerankOperation } from "./rerank/operation.ts";
import { rerank } from "./rerank/route.ts";
import { compactConversation } from "./responses/compact-route.ts";
import { countInputTokens } from "./responses/count-route.ts";
import { createResponse } from "./responses/create-route.ts";
import {
  cancelResponseOperation,
  compactResponseOperation,
  countInputTokensOperation,
  createResponseOperation,
  deleteResponseOperation,
  listInputItemsOperation,
  listResponsesOperation,
  retrieveResponseOperation,
} from "./responses/operation.ts";
import { listResponses } from "./responses/stored/list-route.ts";
import { cancelResponse, deleteResponse, listInputItems, retrieveResponse } from "./responses/stored/stored-route.ts";
import type { DescribedRoute, RouteSettings } from "./route.ts";
import { listSessions } from "./sessions/list-route.ts";
import {
  deleteSessionOperation,
  exportSessionOperation,
  importSessionOperation,
  listSessionsOperation,
} from "./sessions/operation.ts";
import { deleteSession, exportSession, importSession } from "./sessions/route.ts";
import { uploadErrors } from "./skills/errors.ts";
import {
  createSkillOperation,
  createSkillVersionOperation,
  deleteSkillOperation,
  deleteSkillVersionOperation,
  listSkillsOperation,
  listSkillVersionsOperation,
  retrieveSkillOperation,
  retrieveSkillVersionOperation,
  skillContentOperation,
  skillVersionContentOperation,
} from "./skills/operation.ts";
import {
  createSkill,
  createSkillVersion,
  deleteSkill,
  deleteSkillVersion,
  listSkills,
  listSkillVersions,
  retrieveSkill,
  retrieveSkillVersion,
  skillContent,
  skillVersionContent,
} from "./skills/route.ts";
import {
  cancelRequestOperation,
  doctorOperation,
  listRequestsOperation,
  systemConfigOperation,
  systemInfoOperation,
} from "./system/operation.ts";
import { cancelRequest, listRequests } from "./system/requests.ts";
import { systemConfig, systemDoctor, systemInfo } from "./system/route.ts";
import { uiFileOperation, uiOperation, uiRedirectOperation } from "./ui/operation.ts";
import { uiFile, uiPage, uiRedirect } from "./ui/route.ts";

/** Route with its handler. */
export interface Route extends DescribedRoute {
  readonly handler: RouteHandler;
}

const ollama = { errors: ollamaErrors, takesUntyped: true } as const;

/** Routes of the Ollama protocol. */
const ollamaRoutes: readonly Route[] = [
  {
    ...ollama,
    method: "POST",
    path: "/api/chat",
    kind: "inference",
    handler: ollamaChat,
    operation: ollamaChatOperation,
  },
  {
    ...ollama,
    method: "POST",
    path: "/api/generate",
    kind: "inference",
    handler: ollamaGenerate,
    operation: generateOperation,
  },
  { ...ollama, method: "POST", path: "/api/embed", kind: "inference", handler: embed, operation: embedOperation },
  {
    ...ollama,
    method: "POST",
    path: "/api/embeddings",
    kind: "inference",
    handler: oneEmbedding,
    operation: oneEmbeddingOperation,
  },
  { ...ollama, method: "GET", path: "/api/tags", kind: "resource", handler: tags, operation: tagsOperation },
  { ...ollama, method: "GET", path: "/api/ps", kind: "resource", handler: running, operation: runningOperation },
  {
    ...ollama,
    method: "POST",
    path: "/api/show",
    kind: "resource",
    ignoresUnknown: true,
    modelName: "model",
    handler: show,
    operation: showOperation,
  },
  {
    ...ollama,
    method: "POST",
    path: "/api/pull",
    kind: "resource",
    ignoresUnknown: true,
    setting: "downloadsModels",
    handler: pull,
    operation: pullOperation,
  },
  {
    ...ollama,
    method: "DELETE",
    path: "/api/delete",
    kind: "resource",
    ignoresUnknown: true,
    setting: "downloadsModels",
    handler: remove,
    operation: deleteOperation,
  },
  { ...ollama, method: "GET", path: "/api/version", kind: "resource", handler: version, operation: versionOperation },
];

/** Routes of the agent loop: files, sessions and approvals. */
const agentRoutes: readonly Route[] = [
  {
    method: "POST",
    path: "/v1/files",
    kind: "resource",
    spoolsBody: true,
    handler: uploadFile,
    operation: uploadFileOperation,
  },
  {
    method: "GET",
    path: "/v1/files",
    kind: "resource",
    setting: "servesLists",
    handler: listFiles,
    operation: listFilesOperation,
  },
  {
    method: "GET",
    path: "/v1/files/{file_id}",
    kind: "resource",
    handler: retrieveFile,
    operation: retrieveFileOperation,
  },
  {
    method: "DELETE",
    path: "/v1/files/{file_id}",
    kind: "resource",
    handler: deleteFile,
    operation: deleteFileOperation,
  },
  {
    method: "GET",
    path: "/v1/files/{file_id}/content",
    kind: "resource",
    handler: fileContent,
    operation: fileContentOperation,
  },
  {
    method: "GET",
    path: "/v1/containers/{container_id}/files",
    kind: "resource",
    handler: listContainerFiles,
    operation: listContainerFilesOperation,
  },
  {
    method: "GET",
    path: "/v1/containers/{container_id}/files/{file_id}",
    kind: "resource",
    handler: retrieveContainerFile,
    operation: retrieveContainerFileOperation,
  },
  {
    method: "GET",
    path: "/v1/containers/{container_id}/files/{file_id}/content",
    kind: "resource",
    handler: containerFileContent,
    operation: containerFileContentOperation,
  },
  {
    method: "GET",
    path: "/v1/sessions",
    kind: "resource",
    setting: "servesLists",
    handler: listSessions,
    operation: listSessionsOperation,
  },
  {
    method: "GET",
    path: "/v1/sessions/{session_id}",
    kind: "resource",
    handler: exportSession,
    operation: exportSessionOperation,
  },
  {
    method: "PUT",
    path: "/v1/sessions/{session_id}",
    kind: "resource",
    handler: importSession,
    operation: importSessionOperation,
  },
  {
    method: "DELETE",
    path: "/v1/sessions/{session_id}",
    kind: "resource",
    handler: deleteSession,
    operation: deleteSessionOperation,
  },
  {
    method: "POST",
    path: "/v1/agent/approvals/{approval_id}",
    kind: "resource",
    handler: decideApproval,
    operation: decideApprovalOperation,
  },
  {
    method: "GET",
    path: "/v1/agent/approvals",
    kind: "resource",
    handler: listApprovals,
    operation: listApprovalsOperation,
  },
  { method: "GET", path: "/v1/agent/tools", kind: "resource", handler: listTools, operation: listToolsOperation },
];

const skillUpload = {
  spoolsBody: true,
  errors: uploadErrors(commonErrors),
  versionErrors: uploadErrors(messagesErrors),
} as const;
const skillErrors = { versionErrors: messagesErrors } as const;

/** Routes of skills and their versions. */
const skillRoutes: readonly Route[] = [
  {
    ...skillUpload,
    method: "POST",
    path: "/v1/skills",
    kind: "resource",
    handler: createSkill,
    operation: createSkillOperation,
  },
  {
    ...skillErrors,
    method: "GET",
    path: "/v1/skills",
    kind: "resource",
    handler: listSkills,
    operation: listSkillsOperation,
  },
  {
    ...skillErrors,
    method: "GET",
    path: "/v1/skills/{skill_id}",
    kind: "resource",
    handler: retrieveSkill,
    operation: retrieveSkillOperation,
  },
  {
    ...skillErrors,
    method: "DELETE",
    path: "/v1/skills/{skill_id}",
    kind: "resource",
    handler: deleteSkill,
    operation: deleteSkillOperation,
  },
  {
    ...skillErrors,
    method: "GET",
    path: "/v1/skills/{skill_id}/content",
    kind: "resource",
    handler: skillContent,
    operation: skillContentOperation,
  },
  {
    ...skillUpload,
    method: "POST",
    path: "/v1/skills/{skill_id}/versions",
    kind: "resource",
    handler: createSkillVersion,
    operation: createSkillVersionOperation,
  },
  {
    ...skillErrors,
    method: "GET",
    path: "/v1/skills/{skill_id}/versions",
    kind: "resource",
    handler: listSkillVersions,
    operation: listSkillVersionsOperation,
  },
  {
    ...skillErrors,
    method: "GET",
    path: "/v1/skills/{skill_id}/versions/{version}",
    kind: "resource",
    handler: retrieveSkillVersion,
    operation: retrieveSkillVersionOperation,
  },
  {
    ...skillErrors,
    method: "DELETE",
    path: "/v1/skills/{skill_id}/versions/{version}",
    kind: "resource",
    handler: deleteSkillVersion,
    operation: deleteSkillVersionOperation,
  },
  {
    ...skillErrors,
    method: "GET",
    path: "/v1/skills/{skill_id}/versions/{version}/content",
    kind: "resource",
    handler: skillVersionContent,
    operation: skillVersionContentOperation,
  },
];

export const routes: readonly Route[] = [
  { method: "GET", path: "/health", kind: "operations", isOpen: true, handler: health, operation: healthOperation },
  { method: "GET", path: "/", kind: "operations", isOpen: true, handler: root, operation: rootOperation },
  {
    method: "GET",
    path: "/ui",
    kind: "operations",
    isOpen: true,
    setting: "servesUi",
    handler: uiRedirect,
    operation: uiRedirectOperation,
  },
  {
    method: "GET",
    path: "/ui/",
    kind: "operations",
    isOpen: true,
    setting: "servesUi",
    handler: uiPage,
    operation: uiOperation,
  },
  {
    method: "GET",
    path: "/ui/{file}",
    kind: "operations",
    isOpen: true,
    setting: "servesUi",
    handler: uiFile,
    operation: uiFileOperation,
  },
  { method: "GET", path: "/ready", kind: "operations", isOpen: true, handler: ready, operation: readyOperation },
  {
    method: "GET",
    path: "/docs",
    kind: "operations",
    isOpen: true,
    setting: "servesDocs",
    handler: docs,
    operation: docsOperation,
  },
  {
    method: "GET",
    path: "/docs/{asset}",
    kind: "operations",
    isOpen: true,
    setting: "servesDocs",
    handler: docsAsset,
    operation: docsAssetOperation,
  },
  {
    method: "GET",
    path: "/api-doc/openapi.json",
    kind: "operations",
    isOpen: true,
    setting: "servesDocs",
    handler: openApi,
    operation: openApiOperation,
  },
  {
    method: "GET",
    path: "/metrics",
    kind: "operations",
    setting: "servesMetrics",
    handler: metrics,
    operation: metricsOperation,
  },
  {
    method: "GET",
    path: "/v1/system/info",
    kind: "resource",
    handler: systemInfo,
    operation: systemInfoOperation,
  },
  {
    method: "POST",
    path: "/v1/system/doctor",
    kind: "resource",
    handler: systemDoctor,
    operation: doctorOperation,
  },
  {
    method: "GET",
    path: "/v1/system/config",
    kind: "resource",
    setting: "servesLists",
    handler: systemConfig,
    operation: systemConfigOperation,
  },
  {
    method: "GET",
    path: "/v1/system/requests",
    kind: "resource",
    setting: "servesLists",
    handler: listRequests,
    operation: listRequestsOperation,
  },
  {
    method: "POST",
    path: "/v1/system/requests/{request_id}/cancel",
    kind: "resource",
    setting: "servesLists",
    handler: cancelRequest,
    operation: cancelRequestOperation,
  },
  {
    method: "GET",
    path: "/v1/models",
    kind: "resource",
    handler: listModels,
    operation: listModelsOperation,
    versionErrors: messagesErrors,
  },
  {
    method: "GET",
    path: "/v1/models/{model}",
    kind: "resource",
    handler: retrieveModel,
    operation: retrieveModelOperation,
    versionErrors: messagesErrors,
  },
  {
    method: "GET",
    path: "/v1/system/downloads",
    kind: "resource",
    setting: "downloadsModels",
    handler: listDownloads,
    operation: listDownloadsOperation,
  },
  {
    method: "GET",
    path: "/v1/models/{model}/file",
    kind: "resource",
    setting: "sharesModelFiles",
    handler: modelFile,
    operation: modelFileOperation,
  },
  {
    method: "GET",
    path: "/v1/web_models",
    kind: "resource",
    handler: listWebModels,
    operation: listWebModelsOperation,
  },
  {
    method: "GET",
    path: "/v1/web_models/{model}/files/{file}",
    kind: "resource",
    handler: webModelFile,
    operation: webModelFileOperation,
  },
  {
    method: "POST",
    path: "/v1/chat/completions",
    kind: "inference",
    handler: chatCompletions,
    operation: chatOperation,
  },
  {
    method: "POST",
    path: "/v1/completions",
    kind: "inference",
    handler: completions,
    operation: completionOperation,
  },
  { method: "POST", path: "/v1/embeddings", kind: "inference", handler: embeddings, operation: embeddingOperation },
  { method: "POST", path: "/v1/images/generations", kind: "inference", handler: images, operation: imageOperation },
  {
    method: "POST",
    path: "/v1/audio/speech",
    kind: "inference",
    handler: createSpeech,
    operation: createSpeechOperation,
  },
  {
    method: "POST",
    path: "/v1/audio/transcriptions",
    kind: "inference",
    spoolsBody: true,
    handler: transcribeAudio,
    operation: transcribeOperation,
  },
  {
    method: "POST",
    path: "/v1/audio/translations",
    kind: "inference",
    spoolsBody: true,
    handler: translateAudio,
    operation: translateOperation,
  },
  { method: "GET", path: "/v1/audio/voices", kind: "resource", handler: listVoices, operation: listVoicesOperation },
  { method: "POST", path: "/v1/rerank", kind: "inference", handler: rerank, operation: rerankOperation },
  { method: "POST", path: "/rerank", kind: "inference", handler: rerank, operation: shortRerankOperation },
  { method: "POST", path: "/tokenize", kind: "inference", handler: tokenize, operation: tokenizeOperation },
  { method: "POST", path: "/detokenize", kind: "inference", handler: detokenize, operation: detokenizeOperation },
  {
    method: "POST",
    path: "/v1/messages",
    kind: "inference",
    handler: messages,
    operation: messagesOperation,
    errors: messagesErrors,
  },
  {
    method: "POST",
    path: "/v1/messages/count_tokens",
    kind: "inference",
    handler: countTokens,
    operation: countTokensOperation,
    errors: messagesErrors,
  },
  {
    method: "POST",
    path: "/v1/responses",
    kind: "inference",
    takesMessages: true,
    handler: createResponse,
    operation: createResponseOperation,
  },
  {
    method: "POST",
    path: "/v1/responses/compact",
    kind: "inference",
    handler: compactConversation,
    operation: compactResponseOperation,
  },
  {
    method: "POST",
    path: "/v1/responses/input_tokens",
    kind: "inference",
    handler: countInputTokens,
    operation: countInputTokensOperation,
  },
  {
    method: "GET",
    path: "/v1/responses",
    kind: "resource",
    setting: "servesLists",
    handler: listResponses,
    operation: listResponsesOperation,
  },
  {
    method: "GET",
    path: "/v1/responses/{response_id}",
    kind: "resource",
    isInferred: true,
    handler: retrieveResponse,
    operation: retrieveResponseOperation,
  },
  {
    method: "DELETE",
    path: "/v1/responses/{response_id}",
    kind: "resource",
    handler: deleteResponse,
    operation: deleteResponseOperation,
  },
  {
    method: "POST",
    path: "/v1/responses/{response_id}/cancel",
    kind: "resource",
    handler: cancelResponse,
    operation: cancelResponseOperation,
  },
  {
    method: "GET",
    path: "/v1/responses/{response_id}/input_items",
    kind: "resource",
    handler: listInputItems,
    operation: listInputItemsOperation,
  },
  {
    method: "POST",
    path: "/v1/models/status",
    kind: "resource",
    modelName: "model_id",
    handler: modelStatus,
    operation: showStatusOperation,
    errors: managementErrors,
  },
  {
    method: "POST",
    path: "/v1/models/reload",
    kind: "resource",
    modelName: "model_id",
    handler: reloadModel,
    operation: reloadModelOperation,
    errors: managementErrors,
  },
  {
    method: "POST",
    path: "/v1/models/unload",
    kind: "resource",
    modelName: "model_id",
    handler: unloadModel,
    operation: unloadModelOperation,
    errors: managementErrors,
  },
  {
    method: "POST",
    path: "/re_isq",
    kind: "resource",
    modelName: "model",
    handler: requantize,
    operation: requantizeOperation,
  },
  {
    method: "POST",
    path: "/calibration/start",
    kind: "resource",
    modelName: "model",
    handler: startCalibration,
    operation: startCalibrationOperation,
  },
  {
    method: "GET",
    path: "/calibration/status",
    kind: "resource",
    modelName: "query",
    handler: calibrationStatus,
    operation: calibrationStatusOperation,
  },
  {
    method: "POST",
    path: "/calibration/apply",
    kind: "resource",
    modelName: "model",
    handler: applyCalibration,
    operation: applyCalibrationOperation,
  },
  {
    method: "POST",
    path: "/v1/models/tune",
    kind: "resource",
    modelName: "model_id",
    handler: tuneModel,
    operation: tuneModelOperation,
  },
  {
    method: "GET",
    path: "/v1/lora_adapters",
    kind: "resource",
    modelName: "query",
    handler: listAdapters,
    operation: listAdaptersOperation,
    errors: loraListErrors,
  },
  {
    method: "POST",
    path: "/v1/load_lora_adapter",
    kind: "resource",
    setting: "allowLoraUpdates",
    modelName: "model",
    handler: loadAdapter,
    operation: loadAdapterOperation,
    errors: loraErrors,
  },
  {
    method: "POST",
    path: "/v1/unload_lora_adapter",
    kind: "resource",
    setting: "allowLoraUpdates",
    modelName: "model",
    handler: unloadAdapter,
    operation: unloadAdapterOperation,
    errors: loraErrors,
  },
  ...agentRoutes,
  ...skillRoutes,
  ...ollamaRoutes,
];

/** Routes in the API document: all routes above, and the MCP endpoint, which has a separate port. */
export const describedRoutes: readonly DescribedRoute[] = [
  ...routes,
  {
    method: "POST",
    path: "/mcp",
    kind: "operations",
    setting: "servesMcp",
    errors: rpcErrors,
    operation: mcpOperation,
  },
];

export function isServed({ setting }: DescribedRoute, settings: RouteSettings): boolean {
  return setting === undefined || settings[setting];
}
