//! Completions for shells: words from the parser, and paths from the servers.

use std::io::{self, Write};
use std::time::Duration;

use clap_complete::Shell;
use zklock_core::name::NodeName;

use crate::args::Args;
use crate::command_line;
use crate::connect::connect;
use crate::failure::{Failure, written};
use crate::sanitize::plain;

/// How long a shell waits for paths.
const PATIENCE: Duration = Duration::from_secs(1);

/// In a word that begins with a slash, bash completes paths, unless a file belongs there. A word ends
/// for bash at `:` and `=`, too, and what is before them stays as it was typed.
const BASH: &str = r#"
_zklock_with_paths() {
    local typed=${COMP_LINE:0:COMP_POINT} word before path
    for before in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $before == -- ]] && return 0
    done
    _zklock "$@"
    case ${COMP_WORDS[COMP_CWORD-1]} in
        --auth-file | --tls-* | --folder | --hosts) return 0 ;;
    esac
    typed=${typed##*[!\\][[:space:]]}
    [[ $typed == /* ]] || typed=${COMP_WORDS[COMP_CWORD]}
    [[ $typed == /* ]] || return 0
    # Without -r, read takes the backslashes away: $(..) is typed as \$\(..\), since it may be a command.
    IFS= read word <<<"$typed"
    IFS= read before <<<"${typed%"$2"}"
    printf -v before %q "$before"
    COMPREPLY=()
    while IFS= read -r path; do
        printf -v path %q "$path"
        COMPREPLY+=("${path#"$before"}")
    done < <(zklock paths -- "$word" 2>/dev/null)
    compopt -o nospace
}
complete -F _zklock_with_paths -o bashdefault -o default zklock
"#;

/// `compadd` quotes what it inserts.
const ZSH: &str = r#"
_zklock_paths() {
    compadd -S '' -- ${(f)"$(zklock paths -- "${(Q)PREFIX}" 2>/dev/null)"}
}
"#;

/// fish quotes what it inserts, and keeps a quote that was typed and not closed.
const FISH: &str = r#"
function __zklock_typed
    set -l word (commandline -ct)
    string unescape -- $word; or string unescape -- $word"'"; or string unescape -- $word'"'
end
complete -c zklock -n "string match -q '/*' -- (__zklock_typed); and not contains -- -- (commandline -opc)" -f -a "(zklock paths -- (__zklock_typed) 2>/dev/null)"
"#;

/// Writes the completions for a shell to stdout.
pub(crate) fn write(shell: Shell) -> Result<u8, Failure> {
    let mut words = Vec::new();
    clap_complete::generate(shell, &mut command_line::command(), "zklock", &mut words);
    let words = String::from_utf8_lossy(&words);
    let words = match shell {
        Shell::Bash => format!("{words}{BASH}"),
        Shell::Fish => format!("{words}{FISH}"),
        Shell::Zsh => with_paths(&words),
        _ => words.into_owned(),
    };
    written(io::stdout().write_all(words.as_bytes()))?;
    Ok(0)
}

/// Completes the arguments that are paths of locks with a function of this program.
fn with_paths(words: &str) -> String {
    let mut with = String::new();
    for line in words.lines() {
        // The last lines call what is defined above them.
        if line.starts_with("if [ \"$funcstack") {
            with += ZSH.trim_start();
            with += "\n";
        }
        let is_path = line.starts_with("':path -- ") || line.starts_with("'::path -- ");
        match is_path {
            true => with += &line.replace(":_default'", ":_zklock_paths'"),
            false => with += line,
        }
        with += "\n";
    }
    with
}

/// Writes the paths that begin with this text, one a line, to stdout; nothing if they cannot be read.
pub(crate) fn paths(args: &Args, beginning: &str) {
    let _ = print_paths(args, beginning);
}

fn print_paths(args: &Args, beginning: &str) -> Option<()> {
    let (above, name) = beginning.rsplit_once('/')?;
    let client = connect(args, None, PATIENCE).ok()?;
    let dir = if above.is_empty() { "/" } else { above };
    let names = client.nodes().limit(PATIENCE).children(dir).ok()?;
    let mut out = io::stdout().lock();
    for child in names.iter().filter(|child| child.starts_with(name)) {
        // Users do not type the name of a contender, or a name that a terminal cannot show.
        if NodeName::parse(child).is_none() && plain(child) == **child {
            writeln!(out, "{above}/{child}").ok()?;
        }
    }
    drop(client.close());
    Some(())
}
