// Page of the models that run in this browser: the files it keeps, and the one that is loaded.
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { bytes, number } from "../../base/times.ts";
import { contextTokens, loadLocal, localModel, obstacle, threads, unloadLocal } from "../../local/local-model.ts";
import { copying, dropModel, keepModel, keptModels, readKeptModels } from "../../local/model-files.ts";
import { Table } from "../table.tsx";
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
      {problem === null ? <Models /> : <p role="alert">{t(problem)}</p>}
    </div>
  );
}

function Models() {
  const chooser = useRef<HTMLInputElement>(null);
  const state = localModel.value;
  const copy = copying.value;
  const keep: KeepModel = (name, open) => void keepModel(name, open).catch(notifyError);
  return (
    <>
      <Table
        caption={t("keptModels")}
        none={keptModels.value === null ? t("loading") : t("noKeptModels")}
        heads={[t("model"), t("size"), t("status"), ""]}
        rows={(keptModels.value ?? []).map(({ name, bytes: size }) => {
          const isThis = state.status !== "none" && state.name === name;
          const action =
            !isThis || state.status === "failed" ? "load" : state.status === "loading" ? "cancel" : "unload";
          return {
            key: name,
            cells: [
              name,
              bytes(size),
              isThis ? <State key="state" /> : t("statusUnloaded"),
              <span key="actions" class="actions">
                <button
                  type="button"
                  class="button"
                  aria-label={`${t(action)} ${name}`}
                  onClick={() => (action === "load" ? void loadLocal(name).catch(notifyError) : unloadLocal())}
                >
                  {t(action)}
                </button>
                <Drop name={name} isUsed={isThis} />
              </span>,
            ],
          };
        })}
      />
      {copy !== null && (
        <p>
          {t("copying", { name: copy.name })}{" "}
          <progress
            aria-label={t("copying", { name: copy.name })}
            {...(copy.bytes > 0 && { max: copy.bytes, value: copy.done })}
          />{" "}
          {bytes(copy.done)} / {bytes(copy.bytes)}{" "}
          <button type="button" class="button" onClick={() => copy.stop.abort()}>
            {t("cancel")}
          </button>
        </p>
      )}
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
      <Limits />
    </>
  );
}

function State() {
  const state = localModel.value;
  if (state.status === "loading") {
    return <progress aria-label={t("statusLoading")} max={1} value={state.fraction} />;
  }
  if (state.status === "failed") return <span role="alert">{state.problem}</span>;
  if (state.status === "none") return <>{t("statusUnloaded")}</>;
  const { description, engine, threads: count, weightBytes, kvCacheBytes, contextTokens: context } = state.facts;
  const facts = { description, engine, threads: count, context: number(context) };
  return (
    <span>
      {t("statusLoaded")}: {t("localFacts", facts)};{" "}
      {t("localMemory", { weights: bytes(weightBytes), cache: bytes(kvCacheBytes) })}
    </span>
  );
}

function Drop({ name, isUsed }: { readonly name: string; readonly isUsed: boolean }) {
  const [isSure, setSure] = useState(false);
  const press = (): void => {
    setSure(!isSure);
    if (!isSure) return;
    if (isUsed) unloadLocal();
    dropModel(name).catch(notifyError);
  };
  return (
    <button
      type="button"
      class={isSure ? "button danger" : "button"}
      aria-label={`${isSure ? t("reallySure", { action: t("delete") }) : t("delete")} ${name}`}
      onClick={press}
      onBlur={() => setSure(false)}
    >
      {isSure ? t("reallySure", { action: t("delete") }) : t("delete")}
    </button>
  );
}

/** Settings of the next load. */
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

/** Takes a number if the browser finds it valid; it shows the reason if not. */
function take(input: HTMLInputElement, set: (value: number) => void): void {
  if (input.reportValidity() && input.value !== "") set(input.valueAsNumber);
}
