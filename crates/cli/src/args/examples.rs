//! The text below the options in the help.

pub(super) const EXAMPLES: &str = "\
Examples:
  export ZKLOCK_HOSTS=zk1:2181,zk2:2181,zk3:2181
  zklock run -n /locks/nightly -- ./report.sh     run it here unless it runs elsewhere
  zklock run -w 600 /locks/deploy -- make deploy  wait up to ten minutes
  zklock run --permits 4 /locks/api -- ./crawl    at most four at a time
  zklock once --slot \"$(date +%F)\" /jobs/nightly -- ./report.sh
                                                  once a night, wherever a machine is up
  zklock standby /services/importer -- ./importer one active, the others take over
  zklock list --watch /locks/deploy               who holds it, and who waits
  zklock list -r                                  all locks
  zklock why /locks/deploy                        who keeps it from its first waiter
  zklock revoke --evict-after 30 /locks/deploy    ask for it, and take it after 30 s

Words:
  hold      to have the lock; whoever wants it meanwhile waits in a queue, first come first
  session   what the servers know of a client: when it is silent for the session timeout, they
            end it, and the locks it holds are free
  in doubt  the servers have not confirmed the lock for a while: it may be lost soon
  lost      another one may hold the lock: the session ended, or somebody evicted the holder
  evict     to take the lock from its holder, who is told

Exit status:
  that of the command; if signal N ended it, zklock dies of it, too: 128+N to a shell
  1    the lock was taken (another one with -E)
  64   bad usage
  69   no server answered
  70   anything else went wrong
  75   the lock was lost or in doubt, or the time was over, and the command was stopped
  77   the servers refused access
  78   the path serves something else, or the chroot does not exist
  126  the command cannot be run; 127 it was not found";

pub(super) const HOLD_EXAMPLES: &str = "\
Examples:
  zklock hold /locks/deploy --for 2h --reason \"database migration\"
  zklock hold -w 600 /locks/deploy --until 2026-11-26T06:00:00Z --reason freeze
  zklock release /locks/deploy

It waits for its turn as zklock run does, and ends once the lock is held. A hold is no session's: no
crash ends it. At its time it is removed by the next that waits for the lock with zklock; other
programs wait until somebody releases it.

Exit status: 0 if it holds; 1 if the lock was taken (another one with -E); others as in zklock --help.";

pub(super) const PAUSE_EXAMPLES: &str = "\
Examples:
  zklock pause /jobs/nightly --until 2026-11-26T06:00:00Z --reason \"disk is full\"
  zklock pause /locks/deploy --reason incident
  zklock resume /jobs/nightly

It waits for nobody. Who runs now goes on, and so does who was in line before; whoever comes later
waits, or ends as for a lock that is taken. It is what zklock hold makes, and ends in the same way.

Exit status: 0 if it is paused; others as in zklock --help.";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  zklock run -n --hold-at-least 60 /locks/nightly -- ./report.sh
  zklock run -w 600 -E 0 /locks/deploy -- make deploy
  zklock run --max-time 2h /locks/nightly -- ./report.sh
  zklock run -s /locks/data -- ./read-it
  zklock run --write /locks/data -- ./write-it   where Curator's readers and writers are
  zklock run /accounts/jo /accounts/mia --read /rates -- ./transfer
  zklock run /locks/nightly -- sh -c 'psql -v token=$ZKLOCK_TOKEN -f nightly.sql'

The command gets ZKLOCK_PATH, ZKLOCK_NODE and, unless with --permits, ZKLOCK_TOKEN, a
number that grows with every holder: let what the lock protects refuse a lower one. With
--permits N it gets ZKLOCK_PERMIT, from 0 to N-1, which no other command has meanwhile.

The lock is held until the last process has ended that the command has started, so what it
leaves in the background keeps it.

Exit status: that of the command; 1 if the lock is taken (another one with -E); 75 if it was lost
or in doubt, or --max-time was over; others as in zklock --help.";

pub(super) const ONCE_EXAMPLES: &str = "\
Examples:
  zklock once --slot \"$(date +%F)\" /jobs/nightly -- ./report.sh
  zklock once --at-most-every 20h --attempts 3 /jobs/backup -- ./backup.sh
  zklock once -n --slot v0042 /jobs/migrate -- ./migrate.sh
  zklock once --any-order --slot 2026-11-20 /jobs/nightly -- ./report.sh   a night that was left out

The slot is done if the command ends with 0 while it holds the lock. Otherwise the next machine
that waits or comes runs it. The command gets ZKLOCK_SLOT, ZKLOCK_ATTEMPT, ZKLOCK_PATH, ZKLOCK_NODE
and ZKLOCK_TOKEN.

A cursor, or other state that runs leave for each other: the file named by ZKLOCK_STATE_IN has what the
last run that was done left for this one, and is empty at first. What the command writes to the file
named by ZKLOCK_STATE_OUT, up to 8,192 bytes, is for the next one, if this one is done:
  zklock once --slot \"$(date +%F)\" /jobs/import -- sh -c './import --since \"$(cat \"$ZKLOCK_STATE_IN\")\" >\"$ZKLOCK_STATE_OUT\"'

Exit status: that of the command; 0 if it was done before (another one with -E); 1 if another
machine runs it still, no attempts are left, or it is not known any more whether it is done; 75 if the lock was lost before the end.";

pub(super) const STANDBY_EXAMPLES: &str = "\
Examples:
  zklock standby /services/importer -- ./importer
  zklock standby --restart on-failure /services/importer -- ./importer
  zklock standby --ready-file /run/active /services/importer -- ./importer
  zklock standby --on-active ./vip-up --on-passive ./vip-down /services/importer -- ./importer
  zklock standby --status /services/importer      0 if this machine is the active one

When the lock is in doubt the command is stopped, and this machine stands in line again. The
command gets ZKLOCK_TERM, which counts how often this zklock has become active, and ZKLOCK_PATH,
ZKLOCK_NODE and ZKLOCK_TOKEN, which grows each time another machine becomes active.

Exit status: that of the command, unless --restart has it run again; 69 if no server answered at
the start; others as in zklock --help.";

pub(super) const LIST_EXAMPLES: &str = "\
Examples:
  zklock list --watch /locks/deploy               who holds it, and who waits
  zklock list -r                                  all locks, the longest wait first
  zklock list -r --waiting --older-than 10m /locks

Exit status: 0, also if nobody holds it; 77 with -r, if something may not be read; others as in
zklock --help.";
