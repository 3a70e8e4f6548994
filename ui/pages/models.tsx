// Page of the models: their states, buttons to load and unload them, and their adapters.
import { useEffect, useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { bytes, number } from "../base/times.ts";
import { ask } from "../server/client.ts";
import { models, readModels } from "../server/models.ts";
import type { ModelEntry } from "../server/wire.ts";
import { Adapters } from "./adapters.tsx";
import { Downloads } from "./downloads.tsx";
import { Remove } from "./remove.tsx";
import { Table } from "./table.tsx";

const everyMs = 3000;

export function ModelsPage() {
  const [busy, setBusy] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => {
    const timer = setInterval(() => void (!document.hidden && readModels()), everyMs);
    return () => clearInterval(timer);
  }, []);
  const manage = async (id: string, action: "reload" | "unload"): Promise<void> => {
    setBusy((before) => new Set(before).add(id));
    try {
      await ask(`v1/models/${action}`, { method: "POST", body: { model_id: id } });
    } catch (error) {
      notifyError(error);
    } finally {
      setBusy((before) => new Set([...before].filter((one) => one !== id)));
      void readModels();
    }
  };
  const listed = (models.value ?? []).filter(({ id, parent }) => id !== "default" && parent === undefined);
  return (
    <div class="page">
      <h1>{t("pageModels")}</h1>
      <Table
        caption={t("configuredModels")}
        none={models.value === null ? t("loading") : t("noModels")}
        heads={[t("model"), t("status"), t("context"), t("memory"), ""]}
        rows={listed.map((model) => ({
          key: model.id,
          cells: [
            model.id,
            <Status key="status" model={model} isBusy={busy.has(model.id)} />,
            typeof model.max_model_len === "number" ? number(model.max_model_len) : "",
            model.status === "loaded" ? memoryOf(model) : "",
            <span key="actions" class="actions">
              <button
                type="button"
                class="button"
                disabled={busy.has(model.id)}
                onClick={() => void manage(model.id, "reload")}
              >
                {model.status === "loaded" ? t("reload") : t("load")}
              </button>
              <button
                type="button"
                class="button"
                disabled={busy.has(model.id) || model.status !== "loaded"}
                onClick={() => void manage(model.id, "unload")}
              >
                {t("unload")}
              </button>
              {model.downloaded === true && (
                <Remove path="api/delete" body={{ model: model.id }} onDone={() => void readModels()} />
              )}
            </span>,
          ],
        }))}
      />
      <Downloads />
      {listed.map(({ id }) => (
        <Adapters key={id} model={id} />
      ))}
    </div>
  );
}

function Status({ model, isBusy }: { readonly model: ModelEntry; readonly isBusy: boolean }) {
  if (typeof model.load_progress === "number") {
    return <progress aria-label={t("statusLoading")} max={1} value={model.load_progress} />;
  }
  return <>{isBusy ? t("changing") : t(statusKey(model))}</>;
}

function memoryOf({ weight_bytes: weights, kv_cache_bytes: cache }: ModelEntry): string {
  return t("localMemory", { weights: bytes(Number(weights)), cache: bytes(Number(cache)) });
}

function statusKey({ status }: ModelEntry) {
  if (status === "loaded") return "statusLoaded";
  return status === "reloading" ? "statusLoading" : "statusUnloaded";
}
