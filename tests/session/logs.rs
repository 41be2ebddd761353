//! The log of this process, for tests that read it.

use std::sync::{Mutex, Once, PoisonError};

use log::{LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Option<Vec<String>>> = Mutex::new(None);

struct Keeper;

impl Log for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = &mut *lines {
            lines.push(format!(
                "{} {}: {}",
                record.level(),
                record.target(),
                record.args()
            ));
        }
    }

    fn flush(&self) {}
}

/// Keeps every line from now on, of every level.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| log::set_logger(&Keeper).expect("no other logger"));
    log::set_max_level(LevelFilter::Trace);
    *LINES.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
}

/// Returns how many of the lines that were kept contain this.
pub(crate) fn count(what: &str) -> usize {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = lines.iter().flatten();
    lines.filter(|line| line.contains(what)).count()
}

/// Returns the lines that were kept, and clears them.
pub(crate) fn take() -> Vec<String> {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.as_mut().map(std::mem::take).unwrap_or_default()
}
