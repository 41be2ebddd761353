//! Who is at a path, whatever kind of lock it is.
//!
//! The contenders of a mutex or a read-write lock are the path's own children. Those of a
//! semaphore are in two places: who has a permit in `leases`, and who waits in `locks`.
//! The first of those who wait has a node in both while it waits for a permit. Of kazoo's
//! semaphore, the permits are the path's own children, and who waits is beside the path.

use zklock::{Client, Contender, Result, Role};

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue([Vec<Contender>; 4]);

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) contender: &'a Contender,
    pub(crate) holds: bool,
    pub(crate) role: Role,
}

impl Queue {
    pub(crate) fn read(client: &Client, path: &str) -> Result<Self> {
        let [own, leases, line, beside] = places(path);
        Ok(Self([
            client.contenders(&own)?,
            client.contenders(&leases)?,
            client.contenders(&line)?,
            client.contenders(&beside)?,
        ]))
    }

    /// Takes over what one of the [`places`] looks like now.
    pub(crate) fn update(&mut self, place: usize, present: Vec<Contender>) {
        if let Some(old) = self.0.get_mut(place) {
            *old = present;
        }
    }

    /// Returns what is known of one of the [`places`].
    pub(crate) fn at(&self, place: usize) -> Vec<Contender> {
        self.0.get(place).cloned().unwrap_or_default()
    }

    /// Returns everybody, holders first.
    pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
        let [own, leases, line, beside] = &self.0;
        let own = own.iter().map(|contender| Entry {
            contender,
            holds: contender.holds(),
            role: contender.role(),
        });
        let pending = match (leases.last(), line.first()) {
            (Some(lease), Some(first)) if is_same_thread(lease, first) => Some(lease.node()),
            _ => None,
        };
        let leases = leases.iter().map(|contender| Entry {
            contender,
            holds: Some(contender.node()) != pending,
            role: Role::Permit,
        });
        let line = line.iter().skip(usize::from(pending.is_some()));
        let line = line.chain(beside).map(|contender| Entry {
            contender,
            holds: false,
            role: Role::Permit,
        });
        own.chain(leases).chain(line).collect()
    }
}

/// The directories where contenders of `path` can be.
pub(crate) fn places(path: &str) -> [String; 4] {
    [
        path.to_owned(),
        format!("{path}/leases"),
        format!("{path}/locks"),
        format!("{path}-__lock__"),
    ]
}

fn is_same_thread(one: &Contender, other: &Contender) -> bool {
    one.session_id() == other.session_id() && one.owner().thread == other.owner().thread
}
