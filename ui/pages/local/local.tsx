// Page of the models that run in this browser, on the CPU or the GPU: the stored models, and the loaded one.
import { useEffect, useRef } from "preact/hooks";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { copying, dropModel, keepModel, keptModels, readKeptModels } from "../../local/gguf-files.ts";
import { contextTokens, obstacle, threads } from "../../local/local-model.ts";
import { GpuModels } from "./gpu-models.tsx";
import { CopyProgress, KeptModels } from "./kept-models.tsx";
import { type KeepModel, ServerModels } from "./server-models.tsx";

export function LocalPage() {
  const problem = obstacle();
  useEffect(() => {
    if (problem !== "noStorage") readKeptModels().catch(notifyError);
  }, []);
  return (
    <div class="page">
      <h1>{t("pageLocal")}</h1>
      <p>{t("localHelp")}</p>
      <section aria-label={t("browserCpu")}>
        <h2>{t("browserCpu")}</h2>
        {problem === null ? <Models /> : <p role="alert">{t(problem)}</p>}
      </section>
      <GpuModels />
      <Limits />
    </div>
  );
}

function Models() {
  const chooser = useRef<HTMLInputElement>(null);
  const copy = copying.value;
  const keep: KeepModel = (name, open) => void keepModel(name, open).catch(notifyError);
  return (
    <>
      <KeptModels
        caption={t("keptModels")}
        none={t("noKeptModels")}
        device="cpu"
        models={keptModels.value}
        onDrop={dropModel}
      />
      {copy !== null && <CopyProgress copy={copy} />}
      <p class="actions">
        <input
          ref={chooser}
          type="file"
          accept=".gguf"
          aria-label={t("addFromDisk")}
          hidden
          onChange={({ currentTarget }) => {
            const file = currentTarget.files?.[0];
            if (file !== undefined) keep(file.name, async () => ({ stream: file.stream(), bytes: file.size }));
            currentTarget.value = "";
          }}
        />
        <button type="button" class="button main" disabled={copy !== null} onClick={() => chooser.current?.click()}>
          {t("addFromDisk")}
        </button>
      </p>
      <ServerModels isDisabled={copy !== null} onKeep={keep} />
    </>
  );
}

/** Settings that apply when a model is loaded next. */
function Limits() {
  const most = navigator.hardwareConcurrency;
  return (
    <section aria-label={t("settings")} class="limits">
      <h2>{t("settings")}</h2>
      <label class="field">
        <span>{t("localThreads", { cores: most })}</span>
        <input
          type="number"
          min={1}
          max={most}
          value={threads.value}
          onChange={({ currentTarget }) => take(currentTarget, (value) => (threads.value = value))}
        />
      </label>
      <label class="field">
        <span>{t("localContext")}</span>
        <input
          type="number"
          min={256}
          max={131_072}
          step={256}
          value={contextTokens.value}
          onChange={({ currentTarget }) => take(currentTarget, (value) => (contextTokens.value = value))}
        />
      </label>
      <p class="quiet">{t("nextLoad")}</p>
    </section>
  );
}

/** Passes an input's number to `set` if it is valid. Otherwise, the browser shows the reason. */
function take(input: HTMLInputElement, set: (value: number) => void): void {
  if (input.reportValidity() && input.value !== "") set(input.valueAsNumber);
}
