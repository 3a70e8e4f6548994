// Buttons that show an icon, or an icon with a label.
import { Icon, type IconName } from "./icon.tsx";

export interface ButtonProps {
  readonly icon: IconName;
  /** Text for screen readers and for the tooltip. Also displayed if `isLabelled` is set. */
  readonly label: string;
  readonly isLabelled?: boolean;
  readonly isPressed?: boolean;
  readonly isDisabled?: boolean;
  readonly kind?: "plain" | "main" | "danger";
  readonly onPress: (event: MouseEvent) => void;
}

export function Button({ icon, label, isLabelled, isPressed, isDisabled, kind = "plain", onPress }: ButtonProps) {
  return (
    <button
      type="button"
      class={`button ${kind}`}
      title={label}
      aria-label={label}
      {...(isPressed === undefined ? {} : { "aria-pressed": isPressed })}
      disabled={isDisabled === true}
      onClick={onPress}
    >
      <Icon name={icon} />
      {isLabelled === true && <span>{label}</span>}
    </button>
  );
}
