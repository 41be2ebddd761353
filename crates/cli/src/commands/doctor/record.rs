//! Examines whether a path's own node has the data that it should keep.

use zklock::Client;
use zklock_core::mending::{Standing, standing};
use zklock_core::permits::number;

use super::finding::{Finding, Level};
use crate::sanitize::plain;

/// A job's record has been written twice when its first run begins. Semaphores write their number
/// once, and again when it changes.
const TWICE: i32 = 2;

/// Reports a job's record that was replaced.
pub(super) fn look(client: &Client, path: &str) -> Option<Finding> {
    let node = client.nodes().get(path).ok()??;
    let data = plain(&String::from_utf8_lossy(node.data()));
    let mend = format!("zklock forget --repair {path} begins a new record");
    match standing(node.data()) {
        Standing::Torn => {
            let what = format!("the record of its job cannot be read: {data}");
            Some(Finding::new(Level::Trouble, path, what).advice(mend))
        }
        Standing::Unclaimed if TWICE <= node.version() && is_unused(client, path, node.data()) => {
            let what = format!("its data is {data:?}, as of a semaphore that nobody uses");
            let advice = format!("if it is the path of a job, its record was replaced: {mend}");
            Some(Finding::new(Level::Warning, path, what).advice(advice))
        }
        _ => None,
    }
}

/// Returns whether the data is a semaphore's number, or empty, and no client has a permit.
fn is_unused(client: &Client, path: &str, data: &[u8]) -> bool {
    let permits = client.nodes().children(&format!("{path}/leases"));
    (data.is_empty() || number(data).is_some()) && permits.unwrap_or_default().is_empty()
}
