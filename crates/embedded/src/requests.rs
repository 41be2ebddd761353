//! The answers to requests of clients; those that only read, or set watches, are in `reads`.

use super::acl::Identity;
use super::entry::{Act, Entry};
use super::requester::{RequestAnswer, Requester, Result};
use super::state::ServerState;
use super::watches::ConnectionId;
use super::write::Write;
use zklock_jute::{ErrorCode, OpCode, Reply, Request, xid};

impl ServerState {
    /// Carries out a request, and returns what is sent in reply.
    pub(super) fn answer(
        &mut self,
        connection: ConnectionId,
        session: i64,
        xid: i32,
        request: Result<Request>,
    ) -> RequestAnswer {
        let asked = request.map(|request| self.config.understood(request));
        match asked {
            Ok(Request::Auth {
                scheme,
                credentials,
            }) => self.authenticate(connection, xid, &scheme, &credentials.0),
            // The reply has a fixed number, whatever number the request had.
            Ok(Request::Ping) => {
                RequestAnswer::new(xid::PING, self.zxid_of(connection), Ok(Reply::Nothing))
            }
            Ok(Request::Close) => {
                self.catch_up_with(connection);
                self.sessions.end(session);
                self.remove_nodes_of(session);
                RequestAnswer::new(xid, self.view.zxid, Ok(Reply::Nothing)).closing()
            }
            Ok(Request::Unknown(OpCode::SASL)) => RequestAnswer::without_login(xid),
            Ok(Request::Unknown(op)) if op != OpCode::RECONFIG => {
                RequestAnswer::new(xid, self.view.zxid, Err(ErrorCode::UNIMPLEMENTED)).closing()
            }
            Ok(request) => {
                let who = self.identities(connection);
                let by = Requester {
                    connection,
                    session,
                    who: &who,
                };
                let result = self.carry_out(request, by);
                RequestAnswer::new(xid, self.zxid_of(connection), result)
            }
            Err(code) => RequestAnswer::new(xid, self.zxid_of(connection), Err(code)),
        }
    }

    fn identities(&self, connection: ConnectionId) -> Vec<Identity> {
        let connection = self.connections.get(&connection);
        connection.map_or_else(Vec::new, |connection| connection.identities.clone())
    }

    fn authenticate(
        &mut self,
        id: ConnectionId,
        xid: i32,
        scheme: &str,
        secret: &[u8],
    ) -> RequestAnswer {
        let Some(connection) = self.connections.get_mut(&id) else {
            return RequestAnswer::new(xid, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        let identity = match scheme {
            // The address is known already, and is no secret.
            "ip" => Some(Identity::of_address(connection.peer.ip())),
            _ => Identity::of_credentials(scheme, secret),
        };
        let Some(identity) = identity else {
            self.refused_identities += 1;
            return RequestAnswer::new(xid, 0, Err(ErrorCode::AUTH_FAILED)).closing();
        };
        let is_super = self.config.super_digest.as_ref() == Some(&identity.id);
        let administrator = is_super.then(Identity::administrator);
        for identity in administrator.into_iter().chain([identity]) {
            if !connection.identities.contains(&identity) {
                connection.identities.push(identity);
            }
        }
        RequestAnswer::new(xid, 0, Ok(Reply::Nothing))
    }

    fn carry_out(&mut self, request: Request, by: Requester<'_>) -> Result<Reply> {
        let request = match Write::of(request, &self.config) {
            Ok(write) => return self.write(write, by),
            Err(request) => *request,
        };
        match request {
            Request::Sync { path } => {
                self.catch_up_with(by.connection);
                Ok(Reply::Synced { path })
            }
            Request::SetWatches(lists) => {
                let view = self.view_of(by.connection);
                let missed = view.set_watches(lists, by.connection);
                missed.into_iter().for_each(|notice| self.tell(notice));
                Ok(Reply::Nothing)
            }
            read => {
                let listed = listed(&read);
                let reply = self.view_of(by.connection).read(read, by)?;
                let listed = listed.iter();
                listed.for_each(|directory| self.note_listing(directory, by.connection));
                Ok(reply)
            }
        }
    }

    fn write(&mut self, write: Write, by: Requester<'_>) -> Result<Reply> {
        self.catch_up_with(by.connection);
        let at = self.advance();
        let before = self.before_lag(write.ops());
        let kept = self.journal.as_ref().map(|_| write.clone());
        let (reply, changes) = self.view.write(write, by.author(), at);
        let sets_acl = matches!(kept, Some(Write::SetAcl { .. })) && reply.is_ok();
        if let Some(write) = kept.filter(|_| sets_acl || !changes.is_empty()) {
            let (session, who) = (by.session, by.who.to_vec());
            let act = Act::Write { who, write };
            self.keep(Entry { at, session, act });
        }
        self.begin_lag(before, &changes, by.connection);
        self.announce(&changes);
        reply
    }
}

/// Returns the directories that a request lists.
fn listed(request: &Request) -> Vec<String> {
    match request {
        Request::GetChildren { path, .. } => vec![path.clone()],
        Request::MultiRead(ops) => ops.iter().flat_map(listed).collect(),
        _ => Vec::new(),
    }
}
