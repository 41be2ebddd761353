//! A logger that panics, as one does that writes to a closed standard error.

use std::sync::atomic::{AtomicBool, Ordering};

use log::{LevelFilter, Log, Metadata, Record};

/// Panics on a line with this in it, once whenever it is armed.
pub(crate) struct Panics {
    at: &'static str,
    pub(crate) armed: AtomicBool,
}

impl Panics {
    pub(crate) fn at(at: &'static str) -> &'static Self {
        let armed = AtomicBool::new(true);
        let panics: &Self = Box::leak(Box::new(Self { at, armed }));
        log::set_logger(panics).unwrap();
        log::set_max_level(LevelFilter::Debug);
        panics
    }

    pub(crate) fn has_panicked(&self) -> bool {
        !self.armed.load(Ordering::SeqCst)
    }
}

impl Log for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let is_it = record.args().to_string().contains(self.at);
        if is_it && self.armed.swap(false, Ordering::SeqCst) {
            panic!("the log cannot be written");
        }
    }

    fn flush(&self) {}
}
