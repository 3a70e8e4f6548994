// Later characters: the characters added to Unicode after version 15.0, which is the version of llama.cpp's tables.
// llama.cpp's tokenizer treats them as unassigned, but Node's own tables include them. Data only, for regular
// expressions.

/** Content of a regular expression's character class. It includes gaps that no Unicode version assigns. */
export const laterCharacters = [
  String.raw`\u088f\u0897\u0c5c\u0cdc\u1acf-\u1aeb\u1b4e\u1b4f\u1b7f\u1c89\u1c8a\u20c1\u2427-\u2429\u2b96\u31e4\u31e5`,
  String.raw`\ua7cb-\ua7cf\ua7d2\ua7d4\ua7da-\ua7f1\ufbc3-\ufbd2\ufd90\ufd91\ufdc8-\ufdce\u{105c0}-\u{105f3}`,
  String.raw`\u{10940}-\u{10959}\u{10d40}-\u{10d8f}\u{10ec2}-\u{10efc}\u{11380}-\u{113e2}\u{116d0}-\u{116e3}`,
  String.raw`\u{11b60}-\u{11bf9}\u{11db0}-\u{11de9}\u{11f5a}\u{13460}-\u{143fa}\u{16100}-\u{16139}\u{16d40}-\u{16d79}`,
  String.raw`\u{16ea0}-\u{16ed3}\u{16ff2}-\u{16ff6}\u{187f8}-\u{187ff}\u{18cff}\u{18d09}-\u{18df2}\u{1cc00}-\u{1cef0}`,
  String.raw`\u{1e5d0}-\u{1e6ff}\u{1f6d8}\u{1f777}-\u{1f77a}\u{1f8b2}-\u{1f8d8}\u{1fa54}-\u{1fa57}\u{1fa89}-\u{1fa8f}`,
  String.raw`\u{1fabe}\u{1fac6}-\u{1facd}\u{1fadc}-\u{1fadf}\u{1fae9}-\u{1faef}\u{1fbcb}-\u{1fbef}\u{1fbfa}`,
  String.raw`\u{2b73a}-\u{2b73f}\u{2cea2}-\u{2cead}\u{323b0}-\u{33479}`,
].join("");
