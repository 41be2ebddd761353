//! The real side, on which the client runs.

pub(crate) mod channel {
    //! Channels, and the one wait for several of them.

    use std::time::Instant;

    pub(crate) use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
    use crossbeam_channel::{Select, at};

    /// A channel that a thread can wait for.
    pub(crate) trait Waitable {
        fn register<'a>(&'a self, select: &mut Select<'a>);
        fn has_message(&self) -> bool;
    }

    impl<T> Waitable for Receiver<T> {
        fn register<'a>(&'a self, select: &mut Select<'a>) {
            select.recv(self);
        }

        fn has_message(&self) -> bool {
            !self.is_empty()
        }
    }

    /// Blocks until one of the channels has a message or no sender, and returns its index in the
    /// list; returns `None` at the deadline.
    ///
    /// Another thread that reads the same channel may be faster: use `try_recv`, and wait again.
    pub(crate) fn wait_any(channels: &[&dyn Waitable], until: Option<Instant>) -> Option<usize> {
        let mut select = Select::new();
        for channel in channels {
            channel.register(&mut select);
        }
        let Some(until) = until else {
            return Some(select.ready());
        };
        // A wait with a deadline of its own yields a few times after the deadline, each time for a
        // time slice of every other thread if the machine is busy.
        let deadline = at(until);
        select.recv(&deadline);
        match select.ready() {
            place if place < channels.len() => Some(place),
            _ => channels.iter().position(|channel| channel.has_message()),
        }
    }
}

pub(crate) mod clock {
    //! Two clocks: one for plain timeouts, and one that goes on while the machine sleeps.

    use std::time::{Duration, Instant};

    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Added to the time since boot: longer than any session timeout. An event at zero, or one that
    /// is not known to have happened, is then too long ago to rely on, even soon after the machine
    /// has started.
    const BEFORE: Duration = Duration::from_millis(1 << 32);

    /// Names the clock of [`since_boot`]: processes whose clocks have the same name read the same times.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn name() -> Option<String> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        // A container may have a clock of its own. Before Linux 5.6 these files do not exist. A later container may
        // have the number of one that is gone, with another offset.
        let own = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let offsets: Vec<_> = offsets.split_whitespace().collect();
        let mut name = format!("{} {}", boot.trim(), own.display());
        if offsets
            .iter()
            .any(|offset| offset.parse().is_ok_and(|offset: i64| offset != 0))
        {
            name += &format!(" {}", offsets.join(" "));
        }
        Some(name)
    }

    /// Returns `None`: on other systems, clocks are not compared.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn name() -> Option<String> {
        None
    }

    /// Returns the time since long before the machine started, sleep included.
    #[cfg(unix)]
    pub(crate) fn since_boot() -> Duration {
        use rustix::time::{ClockId, clock_gettime};

        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: ClockId = ClockId::Boottime;
        // On macOS this clock counts suspend; for other systems this is not known.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: ClockId = ClockId::Monotonic;

        let time = clock_gettime(CLOCK);
        BEFORE + Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Returns the time since long before the first call, sleep included.
    #[cfg(not(unix))]
    pub(crate) fn since_boot() -> Duration {
        use std::sync::OnceLock;

        // This clock counts suspend on Windows.
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed() + BEFORE
    }
}

pub(crate) mod net {
    //! Sockets and names.

    use std::io;
    use std::net::{SocketAddr, ToSocketAddrs};
    use std::time::Duration;

    pub(crate) use std::net::TcpStream;

    /// Connects; waits at most `limit`.
    pub(crate) fn connect(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(address, limit)
    }

    /// Asks the system's resolver, which has no time limit.
    pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

pub(crate) mod process {
    //! Describes this process to people who look up who holds a lock.

    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime};

    pub(crate) use std::process::id;

    #[cfg(unix)]
    pub(crate) fn host() -> String {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    }

    #[cfg(not(unix))]
    pub(crate) fn host() -> String {
        std::env::var("COMPUTERNAME").unwrap_or_default()
    }

    /// Returns the name of the running program's file.
    pub(crate) fn program() -> String {
        let path = std::env::current_exe().ok();
        let name = path.as_deref().and_then(std::path::Path::file_name);
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Returns a number that no other thread of this process has, even if the threads have the same name.
    pub(crate) fn thread() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        NUMBER.try_with(|number| *number).unwrap_or(0)
    }

    /// Returns the nodes of the locks that this process runs under, as `zklock` tells its command.
    pub(crate) fn locks_around() -> Vec<String> {
        let nodes = std::env::var("ZKLOCK_NODES").unwrap_or_default();
        let nodes = nodes.lines().filter(|node| node.starts_with('/'));
        // The nearest locks come last.
        let nearest = nodes.rev().take(8);
        nearest.map(str::to_owned).collect()
    }

    /// Returns the wall clock's time since 1970.
    pub(crate) fn since_epoch() -> Duration {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default()
    }
}

pub(crate) mod random {
    //! Unique numbers, which are not secret.

    /// Returns sixteen bytes that no other call returns, on this machine or another.
    pub(crate) fn unique_bytes() -> [u8; 16] {
        uuid::Uuid::new_v4().into_bytes()
    }

    /// Returns a number below this one, which another process is unlikely to draw too.
    pub(crate) fn rare_number(below: i32) -> i32 {
        fastrand::i32(0..below)
    }
}

pub(crate) mod sync {
    //! Mutexes that do not poison.

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
}

pub(crate) mod thread {
    //! Threads with a name.

    use std::io;
    use std::thread::Builder;
    pub(crate) use std::thread::{JoinHandle, Thread, current, park, park_timeout, sleep};

    /// Starts a thread.
    pub(crate) fn spawn<T: Send + 'static>(
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        Builder::new().name(name.to_owned()).spawn(run)
    }
}
