"""Named bounds. Every queue, buffer, retry and cache of the broker has one here or in the config table."""

from __future__ import annotations

RECEIVE_BUFFER_BYTES = 256 * 1024
"""One buffer shared by all connections of a broker: a frame that fits is served where it was received."""

PRIVATE_BUFFER_BYTES_MIN = 4 * 1024
PRIVATE_BUFFER_GROWTH = 4
PRIVATE_BUFFER_STEP_BYTES = 4 * 1024 * 1024
"""A frame that does not fit gets a buffer of its own, at most four times what has really arrived: a client that
announces 100 MB and sends 10 bytes costs 4 KB. It grows by no more than so much at a time: memory that is touched for
the first time takes up to 2 ms a megabyte on a virtual machine."""

INTAKE_BYTES_MAX = 96 * 1024 * 1024
"""Requests in memory over all connections, received in part or being served, where `queued.max.request.bytes` says
nothing. One of the largest (100 MB) may grow past it, one after the other."""

INTAKE_GRANTS_PER_TURN = 64
"""Connections that are given room in one turn of the loop, where there is room for them."""

INTAKE_LOOK_S = 1.0
FRAME_S_MAX = 10.0
"""Where the intake is full: how often it is looked through for frames that arrive slowly, and from when on they do."""

DECODED_REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""The largest request that is decoded into objects (all but Produce): they take several times its bytes."""

REQUEST_ELEMENTS_MAX = 100_000
"""Elements of all arrays of one request together, those with many fields counted more than once: they become objects of
some 500 bytes, and kio's reader makes them in one stretch (25 ms). A fetch of 20,000 partitions or a reassignment of
10,000 has fewer than half."""

TAGGED_FIELDS_MAX = 64
TAGGED_FIELD_BYTES_MAX = 256 * 1024
"""Tagged fields in one section of a message, and the size of one that is known. Kafka's own schemas have five at most;
unknown ones are cut out, whatever their size."""

INLINE_REQUEST_BYTES_MAX = 8 * 1024
"""A request up to this size is decoded where it lies. A larger one may have thousands of elements: it is decoded,
carried out and answered in slices (`runtime.line`), with other connections between."""

TURN_SHARE_S = 0.002
"""What one connection may use of a turn of the loop. Whoever has used more goes on when it comes up in line."""

TURN_S = 0.008
WRITTEN_IN_A_FULL_TURN_BYTES_MAX = 64 * 1024
"""What all connections together may use of one turn. Once it is used up, each is served one request more, a handler
that can pause pauses at once, and so much of an answer is sent: a crowd that comes at once costs little each."""

FIRST_SLICE_S = 0.001
"""What a handler that can pause may use at once; the rest of it is done in line."""

ANSWER_BYTES_MAX = 128 * 1024 * 1024
"""The largest answer that is packed (all but Fetch, whose records stay in files): a client that asks for more has its
connection closed. The settings of 10,000 topics take half of it."""

METADATA_ANSWERS_KEPT_MAX = 64
METADATA_KEPT_BYTES_MAX = 16 * 1024 * 1024
METADATA_KEPT_TOPICS_MAX = 64
"""Metadata answers that are kept as they are sent until the cluster changes, what they hold in all (an answer for
10,000 partitions has some 500 KB), and for how many named topics one is kept; an answer for all topics always is."""

OUTPUT_BYTES_HELD_MAX = 1024 * 1024
"""Answers in memory that the client has not taken yet; past it, no more of its requests are read."""

BACKLOG_BYTES_HELD = 48 * 1024 * 1024
BACKLOG_BYTES_MAX = 160 * 1024 * 1024
"""The same over all connections. Past the first, who has not taken its answers is served nothing more; past the second,
the connection that has left most is closed: one that is never read may have asked for the largest answer."""

OUTPUT_ITEMS_HELD_MAX = 256
"""The same bound for answers that lie in files."""

ANSWERS_PARKED_MAX = 128
"""Requests of one connection that wait for something (a flush, a long poll, a coroutine); past it, reading pauses."""

SENDMSG_BUFFERS_MAX = 64
SENDMSG_BYTES_MAX = 512 * 1024
SENDFILE_BYTES_MAX = 1024 * 1024
"""One turn of one connection's writer, so that a fast reader of a large answer does not starve the others."""

INLINE_FETCH_BYTES_MAX = 256 * 1024
"""Below this a fetch answer is read into memory and sent with one call; above it goes out by sendfile."""

WAKEUPS_PER_TURN = 64
"""Long polls answered in one turn of the loop after an append: a producer's next request waits no longer than that."""

CONNECTIONS_WAITING_MAX = 1024
CONNECTIONS_WAITING_SHARE = 8
"""Connections beyond `max.connections`, or that come too fast, which are kept unserved until one ends, or it is their
turn; further ones are closed. At most one in eight of those that the process has descriptors for."""

SAID_LATELY_MAX = 1000
"""Things of one kind (addresses of clients that speak TLS or HTTP to a plaintext port, partitions that cannot be read)
that the log has told of in the last while. It tells of no other until some of them are due again."""

SAID_OF_ADDRESS_MAX = 10
"""Lines in the log within 10 s on failed authentications of one address (of IPv6: of its /64), and as many on malformed
requests: one that has many does not hide the others; SAID_LATELY_MAX bounds those on all of them."""

SILENT_S_MAX = 1.0
"""Where others find no room: how long a connection may say nothing at all."""

TLS_HANDSHAKES_MAX = 2048
TLS_HANDSHAKES_SHARE = 4
TLS_HANDSHAKE_S_MAX = 10.0
"""Handshakes under way, at most one in four of the connections that the process has descriptors for, and how long one
may take. Where there is no room for another, one that has waited for its client for SILENT_S_MAX is ended."""

CONNECTIONS_OF_BROKERS_MAX = 256
CONNECTIONS_OF_BROKERS_SHARE = 8
"""Connections beyond `max.connections` that are served on the listener of the brokers, where that is another than the
clients': a crowd of clients does not keep brokers apart. At most one in eight, too."""

CONNECTIONS_MIN = 16
"""However few descriptors the process may have."""

HTTP_CONNECTIONS_MAX = 32
"""Exchanges on the port of /metrics and /health. The one that waits the longest for its client makes room for a new
one."""

HTTP_HEAD_BYTES_MAX = 8192
HTTP_HEAD_S_MAX = 5.0
HTTP_ANSWER_S_MAX = 10.0
"""How large the head of a request may be, how long it may take, and how long a client may take to read the answer."""

HTTP_ANSWER_BYTES_HELD_MAX = 8 * 1024 * 1024
"""Answers that clients have not taken yet, over all of them; past it the oldest is given up."""

HTTP_WORK_SHARE = 10
"""Making answers takes at most one part in so many of the loop's time: one that took long is given again for a
while."""

METRIC_TOPICS_MAX = 1_000
METRIC_GROUP_TOPICS_MAX = 1_000
"""Topics, and pairs of group and topic, that have figures of their own in /metrics; the others are added up under
"other". All of it is a few thousand lines then, which Prometheus takes in some 10 ms."""

METRIC_GROUP_LETTERS_MAX = 250
"""A group with a longer id is one of the others: an id may have 32,767 bytes, and stands in a line of each family. The
names of topics, which have at most 249, are the only other label that a client chooses."""

METRIC_WAIT_S = 0.5
"""How long /metrics waits for what it asks of the system, and of other brokers: a disk that hangs has no figures
then."""

METRIC_ENDS_MAX = 5_000
"""Partitions with committed offsets and without a replica here whose leaders are asked where they end."""

DESCRIPTORS_INTERNAL_MIN = 32
DESCRIPTORS_INTERNAL_MAX = 512
DESCRIPTORS_INTERNAL_SHARE = 16
"""Descriptors that are neither of log files nor of accepted connections: the store, locks, what threads open for one
call, connections to other brokers. One in sixteen, within these bounds."""

FETCH_SESSION_PARTITIONS_MAX = 200_000
"""Partitions in all incremental fetch sessions: 80 MB. Further readers fetch without a session."""

FETCHED_INLINE_MAX = 64
"""Partitions that a fetch reads at once; one of more reads them in slices."""

PRODUCED_INLINE_MAX = 64
PRODUCED_INLINE_BYTES_MAX = 2 * 1024 * 1024
"""Partitions that a produce request appends to at once, and bytes where it has several; what is more goes in slices."""

CHECKED_INLINE_BYTES_MAX = 256 * 1024
CHECKED_BYTES_PER_TURN = 1024 * 1024
CHECKED_BATCHES_PER_TURN = 256
"""Batches from before the start whose checksums are looked at on the loop when they are first read: of one read, and of
all reads in a turn, which takes 1 ms then. What is more, or is not known to be in the page cache, is checked in a
thread."""

CHECKED_STRETCHES_MAX = 256
"""Stretches of a segment that are remembered as checked: 4 KB, of each segment that a log keeps at hand."""

COLD_READ_RETRIES_MAX = 8
"""Times that a fetch warms its pages and finds them evicted again before it answers with what it has."""

TOPIC_NAME_LENGTH_MAX = 249

PEER_REQUESTS_IN_FLIGHT_MAX = 8192
PEER_BYTES_QUEUED_MAX = 4 * 1024 * 1024
"""Requests to one peer that are not answered, and bytes of them that it has not taken yet; past either, callers wait.
One request may be larger, when nothing else is queued."""

PEER_CALLERS_WAITING_MAX = 1024
"""Callers that wait for room on a connection, or for a connection; further ones are refused at once."""

PEER_RECEIVE_BYTES = 16 * 1024
PEER_FRAME_BYTES_AT_ONCE = 16 * 1024 * 1024
"""What is received before an answer's length is known; and how large an answer's buffer is made on the word of its
length. A longer one grows as it arrives."""

PEER_ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""The longest answer that is received: a follower's fetch may hold one batch of any size allowed beside the rest."""

PEERS_MAX = 1024
"""Connections to other brokers, by broker and purpose."""

OUTBOX_ITEMS_MAX = 10_000
"""Ends of transactions, or transactions to be verified, that wait for one other broker; further ones are told at once
that it cannot be asked, and come again."""

OUTBOX_WEIGHT_PER_REQUEST = 5_000
"""Partitions named in one request for them, unless a single transaction has more."""

COORDINATOR_CALLS_HELD_MAX = 200
"""Requests that wait for one partition of a coordinator while it is loaded, or while a thread decides on something
large there; further ones are told that it loads."""

COORDINATOR_NOTES_HELD_MAX = 1_000
"""Events of the cluster (topics made or deleted) that are kept for a coordinator while it is loaded. Further ones are
not told, as none are in Kafka: offsets of a deleted topic then stay until they expire."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Partitions that one CreateTopics or CreatePartitions may ask for in all: the bound of Kafka's controller."""

PARTITIONS_PER_TOPIC_MAX = 100_000
"""The longest name of a topic, a dash and the number of the last partition are the name of a folder: with one digit
more it would be longer than file systems take (255 bytes)."""

CONFIGS_PER_RESOURCE_MAX = 1_000
"""Settings that one resource is given in a request: there are fewer than 400 keys, so that more name some twice, or
none."""

PACKED_INLINE_BYTES_MAX = 4 * 1024
UNFOLDED_INLINE_BYTES_MAX = 32 * 1024
RECORDS_INLINE_MAX = 512
RECORD_HEADERS_INLINE_MAX = 512
"""The largest batch that is unfolded, walked or compressed anew on the loop: compressed, as plain records, in records,
and in headers of one record. It takes 1 ms, and 7 ms where all of it is headers of records. What is larger is looked
at in a thread."""

ASIDE_BATCHES_MAX = 2
ASIDE_UNFOLDED_BYTES_MAX = 4 * 1024 * 1024
ASIDE_RECORDS_MAX = 65_536
"""Batches looked at in threads at the same time, and how large such a batch may be: more than Kafka's producers send
by default. Each computing thread takes the interpreter's lock for its share of the time."""

HEAVY_BATCHES_MAX = 1
"""Larger ones take up to DECOMPRESSED_BYTES_MAX, once as plain records and once more as a decoder's window: one at a
time, so that a broker stays below 300 MB over what it takes when idle."""

RECORD_ERRORS_MAX = 100
"""Records of a refused batch that its answer names. Kafka names all; producers say of the rest that it was in a batch
with bad ones."""

LOOKUP_STEPS_INLINE_MAX = 2048
LOOKUP_STEPS_PER_READ = 64
"""Steps of about a microsecond that one look-up by time goes on the loop: a batch's header, a record; and how many it
counts for to read something. A longer search goes on in a thread."""

LOOKUP_MARKS_MAX = 4096
LOOKUP_BATCHES_REMEMBERED_MAX = 64
"""Times and places kept of a large batch that a look-up by time had to walk, so that the next one need not: 64 KB at
most. And how many such batches a broker remembers: 4 MB."""

COORDINATOR_ELEMENTS_PER_STEP = 500
"""Offsets, or members that leave, that one step of a group's coordinator has; a request with more takes several, with
others between. A step of so many offsets is encoded, appended and applied within 6 ms."""

CONSUMER_GROUP_INLINE_MAX = 5_000
GROUPS_INLINE_MAX = 2_000
OFFSETS_INLINE_MAX = 2_000
"""What a group's coordinator decides on the loop: a change of a KIP-848 group by the topics and partitions that it
reads, a topic counted for every member that names it; what the deletion of a topic means for so many groups of one
partition of __consumer_offsets; offsets that a marker, or such a deletion, changes. Each takes some 10 ms. What is more
is decided in a thread: the other groups of that partition wait meanwhile, and nobody else."""

OFFSETS_PER_TRANSACTION_MAX = 20_000
"""Offsets that one transaction may commit in one partition of __consumer_offsets: its marker makes all of them count at
once. A consumer of more partitions commits in several transactions. More are refused with UNKNOWN_SERVER_ERROR, as
Kafka refuses a commit that does not fit into a batch."""

GROUP_PROTOCOLS_MAX = 100
"""Protocols that a member of a classic group may name; clients have two or three. All are compared with all members'
when a generation begins. More are refused with INCONSISTENT_GROUP_PROTOCOL; Kafka has no such limit."""

COORDINATOR_GRACES_MAX = 3
"""Times in a row that a coordinator puts off its deadlines because its loop was held. A loop that is never on time must
not keep dead members, and the partitions that they have, for ever."""

EXPRESSION_LETTERS_MAX = 10_000
EXPRESSION_REPETITIONS_MAX = 1_000
EXPRESSION_UNICODE_CLASSES_MAX = 20
EXPRESSION_NAMED_GROUPS_MAX = 20
EXPRESSION_MEMORY_BYTES_MAX = 1024 * 1024
"""Of one regular expression of a client: a list of 400 names has room. Compiling holds the loop, so what makes it slow
is bounded: repetitions, of which a counted one weighs its count (5,000 of `a?` take 90 ms), and classes of Unicode's
letters (0.1 ms each). Named groups are captured, which every step then pays for. The memory is RE2's, for the program
and what it remembers of texts; a program that has no room in it is refused. Kafka has no such limits."""

EXPRESSIONS_KEPT_MAX = 16
"""Compiled expressions that are kept for their next use, each with at most EXPRESSION_MEMORY_BYTES_MAX."""

EXPRESSION_STEPS_INLINE_MAX = 500_000
EXPRESSION_NAMES_INLINE_MAX = 1_000
EXPRESSION_NAMES_ASKED_INLINE_MAX = 100
EXPRESSIONS_INLINE_MAX = 4
"""What is matched where a heartbeat asks for it: instructions times letters (20 ns each), names (3 us each;
where there are ACLs, some 10 more to ask them) and expressions (compiled for that). Beyond any, a thread does it, and
the group hears of it later, as all do in Kafka."""

EXPRESSION_NAMES_PER_PIECE = 500
"""Names of topics that are matched in one go in a thread: others use the threads, too."""

CHILD_IDLE_S_MAX = 30.0
CHILD_IDLE_BYTES_MAX = 64 * 1024 * 1024
"""How long the process that compacts logs stays without work: twice the pause between looks for some. And how much
memory it may have taken for that, of which most is free again: one that took more ends with its work."""

NEWS_LINES_MAX = 100
NEWS_WINDOW_S = 10.0
"""Lines on topics and configs that are created, changed and deleted, in so long; what is more is counted."""

ACLS_MAX = 100_000
ACL_LETTERS_MAX = 1_000
ACLS_OF_PATTERN_BYTES_MAX = 512 * 1024
"""ACLs of a cluster, letters of a name, principal or host in one, and what all ACLs of one resource pattern take: they
are one entry of the store, and ZooKeeper takes 1 MB of it. More are refused with INVALID_REQUEST; Kafka has no such
limits."""

ACL_DECISIONS_MAX = 20_000
ACL_NAME_REMEMBERED_LETTERS_MAX = 300
"""Decisions on what a principal may do that are remembered, so many of each kind, some 20 MB in
all; past it all of a kind are forgotten, and found out anew (some 3 us each). Names longer than a topic's can be are
not remembered."""

DENIAL_LETTERS_MAX = 300
DENIALS_SAID_MAX = 100
"""Letters of a name in the log of what is denied; the rest is cut off. And its lines on one client in 10 s, so that one
who asks for much does not hide the others; SAID_LATELY_MAX bounds those on all of them."""

ACL_PATTERNS_PER_PAUSE = 500
"""ACLs that are looked through in one go: a millisecond."""

SCRAM_MESSAGE_BYTES_MAX = 8 * 1024
SASL_TOKEN_BYTES_MAX = 64 * 1024
"""One message of a client that says who it is: of SCRAM, and of any mechanism. A longer one is refused; a frame of them
is bounded by `sasl.server.max.receive.size` before."""

AUTHENTICATION_S_MAX = 30.0
AUTHENTICATION_FRAMES_MAX = 10
"""How long a client may take to say who it is, and with how many frames. Four are enough for every mechanism."""

AUTHENTICATING_MAX = 2_000
"""Connections that have not said who they are; with more, the oldest of the address that has the most is closed. A
client needs milliseconds."""

GUESSES_FREE = 5
GUESS_DELAY_S_MAX = 2.0
GUESSES_WAITING_PER_ADDRESS_MAX = 50
GUESSING_ADDRESSES_MAX = 10_000
"""Failed authentications of an address within a minute that wait no longer than
`connection.failed.authentication.delay.ms`; how long the next ones wait for their answer at most; how many of an
address do at the same time; and how many addresses are remembered, some 2 MB."""

GUESSES_HELD_MAX = 256
"""Messages of clients whose address has as many failures waiting as may: they are looked at when one of these is over.
With more, or after AUTHENTICATION_S_MAX, the connection is closed."""

USERS_MAX = 100_000
USER_NAME_LETTERS_MAX = 1_000
SCRAM_SALT_BYTES_MAX = 1_024
"""SCRAM users of a cluster, letters of a name, and bytes of a salt. More are refused with UNACCEPTABLE_CREDENTIAL;
Kafka has no such limits."""

TOKEN_KEYS_MAX = 100
TOKEN_KEYS_TRIED_MAX = 4
"""Keys that are read of a JWKS, and how many are tried on a token that does not say by which it is signed."""

JWKS_BYTES_MAX = 1024 * 1024
JWKS_FETCH_S_MAX = 10.0
JWKS_EARLY_REFRESH_S_MIN = 10.0
"""The keys of tokens: how large their file may be, how long fetching it may take, and how often it is fetched because a
token names a key that is not there."""

QUOTA_COUNTERS_MAX = 4_000
QUOTA_NAME_REMEMBERED_LETTERS_MAX = 300
"""Users and client ids whose use of one kind of quota is counted each for itself: 10 MB, and only of those who came
within the last window. Further client ids, and longer ones, share one count."""

QUOTA_ENTITIES_MAX = 10_000
QUOTA_NAME_LETTERS_MAX = 1_000
"""Users, client ids and addresses that have a quota, and letters of a name of one. More are refused with
INVALID_REQUEST; Kafka has no such limits."""

QUOTA_CHANGES_MAX = 100
"""Types and quotas of one entity that a request may name: there are fewer than ten."""

THROTTLE_S_MAX = 600.0
"""How long a connection is muted at most, whatever its answer says: for a large request and a tiny quota that may be
years. As long, by default, as one may be idle."""

CONNECTION_RATE_ADDRESSES_MAX = 10_000
"""Addresses whose rate of new connections is counted. Those that come beyond share one count until others are idle."""
