//! Who is at a path, holders first.

use zklock::{Client, Contender, Result};

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Vec<Contender>);

impl Queue {
    pub(crate) fn new(contenders: Vec<Contender>) -> Self {
        Self(contenders)
    }

    pub(crate) fn read(client: &Client, path: &str) -> Result<Self> {
        client.contenders(path).map(Self)
    }

    pub(crate) fn contenders(&self) -> &[Contender] {
        &self.0
    }
}
