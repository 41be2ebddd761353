//! The limits on the length of the product's files and functions.

use std::fs;

use super::sources;

/// The folders whose code no user has.
const SIMULATION: [&str; 2] = ["src/sim/", "src/system/simulated/"];

const FILE: usize = 400;
const FUNCTION: usize = 40;

#[test]
fn no_file_has_more_than_400_lines_and_no_function_more_than_40() {
    let mut long = Vec::new();
    for (file, _) in sources("src").into_iter().chain(sources("crates")) {
        if SIMULATION.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("it is UTF-8");
        let product = text.split("#[cfg(test)]\nmod tests {").next();
        let lines: Vec<_> = product.unwrap_or_default().lines().collect();
        if FILE < lines.len() {
            long.push(format!("{file} has {}", lines.len()));
        }
        for (at, line) in lines.iter().enumerate() {
            let Some(length) = function(line, &lines[at..]) else {
                continue;
            };
            if FUNCTION < length {
                long.push(format!("{file}:{} has {length}: {}", at + 1, line.trim()));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Returns the number of lines of the function that begins here, if one does. rustfmt puts
/// its end right below its beginning, at the same indentation.
fn function(line: &str, lines: &[&str]) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    let (before, _) = line.split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let is_begin = |word: &str| words.iter().any(|it| word.starts_with(it));
    if !before.split_whitespace().all(is_begin) {
        return None;
    }
    let end = format!("{:indent$}}}", "");
    let body = lines
        .iter()
        .position(|line| line.ends_with('{') || line.ends_with(';') || line.ends_with('}'))?;
    match lines[body].ends_with('{') {
        true => Some(lines.iter().position(|line| *line == end)? + 1),
        false => Some(body + 1),
    }
}
