// Decoder package: whether the optional package that decodes audio files is installed.
import { ServerError } from "../../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../../runtime/host/optional-packages.ts";

const decoderPackage = "audio-decode";

/** Returns why audio files cannot be read on this machine, with the command that installs the missing package; null if they can. */
export function missingDecoder(): string | null {
  if (isInstalled(decoderPackage)) return null;
  return `audio files need the package ${decoderPackage}, which is not installed: ${installCommand([decoderPackage])}`;
}

/** Throws `config_invalid` if a model's audio projector needs the package and it is not installed. */
export function checkAudioDecoder(): void {
  const missing = missingDecoder();
  if (missing !== null) throw new ServerError("config_invalid", `mmproj: ${missing}`, { param: "mmproj" });
}
