//! Makes the text of other clients harmless for a terminal.

/// Characters that are invisible or change how others are shown: format characters, such as those
/// for the direction of text, fillers, and line separators.
const HIDDEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Replaces characters that could move the cursor or hide text.
pub(crate) fn plain(text: &str) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '\u{fffd}' };
    text.chars().map(plain).collect()
}

/// Escapes the same characters in a JSON text, where they can occur only in strings.
pub(crate) fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || c == '\n' {
            plain.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            plain.push_str(&format!("\\u{unit:04x}"));
        }
    }
    plain
}

fn is_plain(c: char) -> bool {
    !c.is_control()
        && !HIDDEN
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_turns_text_is_shown_as_a_replacement() {
        let bad = [
            '\u{7}',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{3164}',
            '\u{e0001}',
            '\u{e0041}',
        ];
        for c in bad {
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        for good in [
            "report.sh",
            "tägliche Läufe",
            "夜間バッチ",
            "עברית",
            "+-/😀",
        ] {
            assert_eq!(plain(good), good);
        }
    }

    #[test]
    fn json_says_the_same_with_such_characters_escaped() {
        let value = serde_json::json!({ "note": "a\u{202e}b\u{9b}\n\u{e0001}" });
        let text = plain_json(&format!("{value:#}"));
        assert!(text.chars().all(|c| is_plain(c) || c == '\n'), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).ok(),
            Some(value)
        );
    }
}
