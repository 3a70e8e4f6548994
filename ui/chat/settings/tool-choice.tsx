// Choice of the server tools that the conversation uses.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { Dialog } from "../../base/dialog.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import type { TextKey } from "../../base/texts/en.ts";
import type { OpenConversation } from "../../conversations/open-conversation.ts";
import { ask } from "../../server/client.ts";
import { changeSettings } from "../current.ts";

/** Built-in tools: name in the settings, feature of the server (tool group), and key of the label. */
const builtIn: readonly (readonly [name: string, group: string, key: TextKey])[] = [
  ["code", "code_execution", "toolCode"],
  ["shell", "shell", "toolShell"],
  ["search", "web_search", "toolSearch"],
];

interface ServerTool {
  readonly name: string;
  readonly group: string | null;
  readonly server_label: string | null;
}

interface Skill {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
}

const isOpen = signal(false);
const skills = signal<readonly Skill[]>([]);
/** Tools that the server offers; null until they have been read. */
const offered = signal<readonly ServerTool[] | null>(null);

export function ToolChoice({ open }: { readonly open: OpenConversation }) {
  const { tools } = open.conversation.value.settings;
  return (
    <>
      <Button
        icon="tool"
        label={tools.length === 0 ? t("tools") : t("toolsChosen", { count: tools.length })}
        isPressed={tools.length > 0}
        onPress={() => (isOpen.value = true)}
      />
      {isOpen.value && <ToolDialog open={open} />}
    </>
  );
}

function ToolDialog({ open }: { readonly open: OpenConversation }) {
  const { tools, skills: chosen, asksApproval } = open.conversation.value.settings;
  useEffect(() => {
    ask<{ readonly data: readonly ServerTool[] }>("v1/agent/tools")
      .then(({ data }) => (offered.value = data))
      .catch((error: unknown) => {
        offered.value = [];
        notifyError(error);
      });
    ask<{ readonly data: readonly Skill[] }>("v1/skills")
      .then(({ data }) => (skills.value = data))
      .catch(() => {
        // A server without an agent loop has no skills, so this error is ignored.
      });
  }, []);
  const change = (settings: Parameters<typeof changeSettings>[0]): void => {
    changeSettings(settings).catch(notifyError);
  };
  const known = offered.value ?? [];
  const labels = [...new Set(known.flatMap(({ server_label: label }) => label ?? []))];
  // A chosen tool is shown even if the server does not offer it now, so that the user can remove it.
  const choices = [
    ...builtIn
      .filter(([name, group]) => tools.includes(name) || known.some((tool) => tool.group === group))
      .map(([name, , key]) => ({ name, label: t(key), help: "" })),
    ...[...new Set([...labels.map((label) => `mcp:${label}`), ...tools.filter((name) => name.startsWith("mcp:"))])].map(
      (name) => {
        const label = name.slice("mcp:".length);
        const own = known.filter(({ server_label: server }) => server === label).map((tool) => tool.name);
        return { name, label: t("mcpServer", { name: label, count: own.length }), help: own.join(", ") };
      },
    ),
  ];
  return (
    <Dialog title={t("tools")} onClose={() => (isOpen.value = false)}>
      <fieldset>
        <legend>{t("toolsOfServer")}</legend>
        {choices.length === 0 && <p class="quiet">{offered.value === null ? t("loading") : t("noTools")}</p>}
        {choices.map(({ name, label, help }) => (
          <Check
            key={name}
            label={label}
            help={help}
            isChecked={tools.includes(name)}
            onChange={(isOn) => change({ tools: isOn ? [...tools, name] : tools.filter((one) => one !== name) })}
          />
        ))}
      </fieldset>
      {skills.value.length > 0 && (
        <fieldset>
          <legend>{t("skills")}</legend>
          {skills.value.map(({ id, name }) => (
            <Check
              key={id}
              label={name}
              isChecked={chosen.includes(id)}
              onChange={(isOn) => change({ skills: isOn ? [...chosen, id] : chosen.filter((one) => one !== id) })}
            />
          ))}
        </fieldset>
      )}
      <Check label={t("askBeforeCalls")} isChecked={asksApproval} onChange={(isOn) => change({ asksApproval: isOn })} />
    </Dialog>
  );
}

interface CheckProps {
  readonly label: string;
  /** Additional text below the label; "" or absent if there is none. */
  readonly help?: string;
  readonly isChecked: boolean;
  readonly onChange: (isOn: boolean) => void;
}

export function Check({ label, help = "", isChecked, onChange }: CheckProps) {
  return (
    <label class="check">
      <input type="checkbox" checked={isChecked} onChange={({ currentTarget }) => onChange(currentTarget.checked)} />
      <span>
        {label}
        {help !== "" && <small class="quiet">{help}</small>}
      </span>
    </label>
  );
}
