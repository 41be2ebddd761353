//! The names that the compiler proposes to users, hidden ones included.

use super::sources;

/// The word by which Curator, kazoo and others unlock: a program that is moved calls it in many
/// places.
const WORD: &str = "release";

/// The beginning of the name of a hidden method that the compiler does not propose for [`WORD`].
const TOO_LONG: &str = "follows_";

#[test]
fn the_compiler_proposes_nothing_hidden_to_whoever_writes_release() {
    let mut hidden = 0;
    for (file, text) in sources("src") {
        let mut lines = text.lines().map(str::trim);
        while lines.any(|line| line == "#[doc(hidden)]") {
            let Some(name) = lines.next().and_then(|line| line.split("fn ").nth(1)) else {
                continue;
            };
            hidden += 1;
            let name = name.split(['(', '<']).next().unwrap_or(name);
            assert!(
                name.split('_').all(|word| word != WORD) || name.starts_with(TOO_LONG),
                "{file}: rustc would propose the hidden {name}"
            );
        }
    }
    assert!(5 < hidden, "{hidden}");
}
