//! The state that the threads of a server share.

use std::sync::Arc;

use parking_lot::Mutex;

use super::config::ServerConfig;
use super::faults::NetworkFaults;
use super::state::ServerState;

/// The state that the threads of a server share.
pub(super) struct SharedServer {
    pub(super) config: ServerConfig,
    pub(super) state: Mutex<ServerState>,
    pub(super) network: Arc<NetworkFaults>,
}
