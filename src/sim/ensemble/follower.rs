//! What a follower does with what its leader sends.

use super::message::{Message, Towards};
use super::server::Step;
use super::state::Ensemble;

impl Ensemble {
    /// Takes a message of the leader.
    pub(super) fn at_follower(&mut self, server: usize, message: Message) {
        let now = self.now;
        let node = &mut self.servers[server];
        let committed = node.committed;
        let Some(following) = node.following() else {
            return;
        };
        following.heard = now;
        let link = following.link;
        match message {
            Message::Propose(transaction) => {
                node.log.push(transaction);
                let length = node.log.len();
                self.send(link, Towards::Leader, Message::Ack(length));
            }
            Message::Commit(length) if committed < length => {
                node.committed = length;
                self.plan_step(server, Step::Apply);
            }
            Message::Ping => {
                let touched = std::mem::take(&mut node.touched).into_iter().collect();
                self.send(link, Towards::Leader, Message::Pong(touched));
            }
            Message::Revalidated { connection, valid } => self.finish_handshake(connection, valid),
            Message::Synced(sync) => self.plan_step(server, Step::Sync(sync)),
            Message::UpToDate => following.is_serving = true,
            Message::Reset => {
                self.links.remove(&link);
                self.resign(server);
            }
            _ => {}
        }
    }
}
