// Table of the models that this browser stores for one device, with the state of the loaded model.
import { useState } from "preact/hooks";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { bytes, number } from "../../base/times.ts";
import { type Device, loadLocal, localId, localModel, unloadLocal } from "../../local/local-model.ts";
import type { Copying, KeptModel } from "../../local/model-storage.ts";
import { Table } from "../table.tsx";

interface Props {
  readonly caption: string;
  /** Text shown if there are no models. */
  readonly none: string;
  readonly device: Device;
  /** Stored models; null until they have been read. */
  readonly models: readonly KeptModel[] | null;
  readonly onDrop: (name: string) => Promise<void>;
}

export function KeptModels({ caption, none, device, models, onDrop }: Props) {
  const state = localModel.value;
  return (
    <Table
      caption={caption}
      none={models === null ? t("loading") : none}
      heads={[t("model"), t("size"), t("status"), ""]}
      rows={(models ?? []).map(({ name, bytes: size }) => {
        const id = localId(name, device);
        const isThis = state.status !== "none" && state.id === id;
        const action = !isThis || state.status === "failed" ? "load" : state.status === "loading" ? "cancel" : "unload";
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
                onClick={() => (action === "load" ? void loadLocal(id).catch(notifyError) : unloadLocal())}
              >
                {t(action)}
              </button>
              <Drop name={name} isUsed={isThis} onDrop={onDrop} />
            </span>,
          ],
        };
      })}
    />
  );
}

function State() {
  const state = localModel.value;
  if (state.status === "loading") {
    return <progress aria-label={t("statusLoading")} max={1} value={state.fraction} />;
  }
  if (state.status === "failed") return <span role="alert">{state.problem}</span>;
  if (state.status === "none") return <>{t("statusUnloaded")}</>;
  const { description, engine, threads, weightBytes, kvCacheBytes, contextTokens } = state.facts;
  const facts = { description, engine, context: number(contextTokens) };
  const weights = bytes(weightBytes);
  return (
    <span>
      {t("statusLoaded")}: {threads === null ? t("gpuFacts", facts) : t("localFacts", { ...facts, threads })};{" "}
      {kvCacheBytes === null
        ? t("weightMemory", { weights })
        : t("localMemory", { weights, cache: bytes(kvCacheBytes) })}
    </span>
  );
}

interface DropProps {
  readonly name: string;
  readonly isUsed: boolean;
  readonly onDrop: (name: string) => Promise<void>;
}

function Drop({ name, isUsed, onDrop }: DropProps) {
  const [isSure, setSure] = useState(false);
  const press = (): void => {
    setSure(!isSure);
    if (!isSure) return;
    if (isUsed) unloadLocal();
    onDrop(name).catch(notifyError);
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

/** Progress of a copy into the browser, with a cancel button. */
export function CopyProgress({ copy }: { readonly copy: Copying }) {
  const label = t("copying", { name: copy.name });
  return (
    <p>
      {label} <progress aria-label={label} {...(copy.bytes > 0 && { max: copy.bytes, value: copy.done })} />{" "}
      {bytes(copy.done)} / {bytes(copy.bytes)}{" "}
      <button type="button" class="button" onClick={() => copy.stop.abort()}>
        {t("cancel")}
      </button>
    </p>
  );
}
