// Characters whose categories in Hugging Face's tokenizers package differ from those in JavaScript. The package uses
// the tables of Unicode 16 (patterns) and of Unicode 8 or 9 (BERT's steps, accents, normalization forms). The lists
// were found by testing every character with the package and with JavaScript's tables of Unicode 17. Data only.

/** Letters, marks, numbers and symbols that the package's patterns treat as unassigned. */
const afterSixteen = [
  "88f c5c cdc 1acf-1add 1ae0-1aeb 20c1 2b96 a7ce-a7cf a7d2 a7d4 a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 10940-10959",
  "10ec5-10ec7 10ed0-10ed8 10efa-10efb 11b60-11b67 11db0-11ddb 11de0-11de9 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6",
  "187f8-187ff 18d09-18d1e 18d80-18df2 1ccfa-1ccfc 1ceba-1ced0 1cee0-1cef0 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff",
  "1f6d8 1f777-1f77a 1f8d0-1f8d8 1fa54-1fa57 1fa8a 1fa8e 1fac8 1facd 1faea 1faef 1fbfa 2b73a-2b73f 2cea2-2cead",
  "323b0-33479",
].join(" ");

/** Nonspacing marks that the package's BERT normalizer does not remove as accents. */
const laterNonspacing = [
  "7fd 897-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba ece 180f 1885-1886 1abf-1add 1ae0-1aeb 1df6-1dfb",
  "a82c a8c5 a8ff a9bd 10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10eff 10f46-10f50 10f82-10f85 11070 11073-11074",
  "110c2 111c9 111cf 1123e 11241 1133b 113bb-113c0 113ce 113d0 113d2 113e1-113e2 11438-1143f 11442-11444 11446",
  "1145e 1182f-11837 11839-1183a 1193b-1193c 1193e 11943 119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38",
  "11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a99 11b60 11b62-11b64 11b66 11c30-11c36",
  "11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45",
  "11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 11f00-11f01 11f36-11f3a 11f40 11f42 11f5a 13440 13447-13455",
  "1611e-16129 1612d-1612f 16f4f 16fe4 1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024",
  "1e026-1e02a 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5",
  "1e944-1e94a",
].join(" ");

/** Combining marks that the package's accent removal (StripAccents) keeps. */
const laterMarks = [
  "7fd 897-89f 8ca-8d3 9fe afa-aff b55 c04 c3c cf3 d00 d3b-d3c d81 eba ece 1715 180f 1abf-1add 1ae0-1aeb 1cf7",
  "1df6-1dfa a82c a8ff 10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10eff 10f46-10f50 10f82-10f85 11070 11073-11074",
  "110c2 11145-11146 111c9 111ce-111cf 11241 1133b 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2",
  "113e1-113e2 1145e 1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 11942-11943 119d1-119d7 119da-119e0",
  "119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99 11b60-11b67 11d31-11d36 11d3a",
  "11d3c-11d3d 11d3f-11d45 11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 11f00-11f01 11f03 11f34-11f3a",
  "11f3e-11f42 11f5a 13440 13447-13455 1611e-1612f 16f4f 16f7f-16f87 16fe4 16ff0-16ff1 1cf00-1cf2d 1cf30-1cf46",
  "1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5",
].join(" ");

/** Punctuation that the package's BERT pre-tokenizer does not treat as punctuation. */
const laterPunctuation = [
  "61d 9fd a76 c77 c84 1b4e-1b4f 1b7d-1b7f 2e43-2e4f 2e52-2e5d 10d6e 10ead 10ed0 10f55-10f59 10f86-10f89",
  "113d4-113d5 113d7-113d8 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46",
  "11a9a-11a9c 11a9e-11aa2 11b00-11b09 11be1 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2",
  "16d6d-16d6f 16e97-16e9a 16fe2 1e5ff 1e95e-1e95f",
].join(" ");

/** Letters that the package's normalization forms do not decompose. */
const laterCompositions = "105c9 105e4 11383 11385 1138e 11391 113c5 113c7-113c8 11938 16d68-16d6a";
/** Invisible characters that the package's BERT normalizer keeps. */
const laterInvisible = "890-891 8e2 110cd 13430-1343f";

/** Converts ranges of hexadecimal code points to the content of a regular expression's character class. */
function classOf(ranges: string): string {
  return ranges.replace(/[0-9a-f]+/g, (digits) => `\\u{${digits}}`).replaceAll(" ", "");
}

/** Characters that the package's patterns treat as unassigned. */
export const unknownToPatterns = new RegExp(`[${classOf(afterSixteen)}]`, "gu");
export const nonspacingMarks = new RegExp(String.raw`[[\p{Mn}--[${classOf(laterNonspacing)}]]\u1734\u{1171e}]`, "gv");
export const combiningMarks = new RegExp(String.raw`[[\p{M}--[${classOf(laterMarks)}]]\u1cf2\u1cf3]`, "gv");
/**
 * Matches text that normalization may change: all text except the letters that are not decomposed and the marks that
 * are not reordered.
 */
export const decomposable = new RegExp(`[^${classOf(laterCompositions)}${classOf(laterMarks)}]+`, "gu");
/** Content of a character class: the characters that are words of their own for BERT. */
export const bertPunctuation = String.raw`[\p{P}--[${classOf(laterPunctuation)}]]\u166d\u{111c9}$+<=>^${"`"}\|~`;
/** Characters that the BERT normalizer removes. */
export const invisible = new RegExp(
  String.raw`[\0\ufffd[[\p{Cc}\p{Cf}\p{Co}]--[\t\n\r${classOf(laterInvisible)}]]]`,
  "gv",
);
