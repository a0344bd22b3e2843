BEGIN TRANSACTION;
CREATE TABLE closures (
	pool VARCHAR NOT NULL,
	until FLOAT NOT NULL,
	result VARCHAR NOT NULL,
	why VARCHAR NOT NULL,
	strikes INTEGER NOT NULL,
	PRIMARY KEY (pool)
);
INSERT INTO "closures" VALUES('t4',1000300.0,'capacity','none left',1);
CREATE TABLE idle (
	node VARCHAR NOT NULL,
	since FLOAT NOT NULL,
	PRIMARY KEY (node)
);
INSERT INTO "idle" VALUES('t4-1',1000000.0);
CREATE TABLE operation_nodes (
	op VARCHAR NOT NULL,
	node VARCHAR NOT NULL,
	place INTEGER NOT NULL,
	job VARCHAR,
	need INTEGER NOT NULL,
	machine VARCHAR,
	result VARCHAR,
	detail VARCHAR,
	PRIMARY KEY (op, node)
);
INSERT INTO "operation_nodes" VALUES('op-1','t4-1',0,'17',2,'i-1','ok','');
INSERT INTO "operation_nodes" VALUES('op-1','t4-2',1,'17',2,NULL,'capacity','none left');
CREATE TABLE operations (
	id VARCHAR NOT NULL,
	verb VARCHAR NOT NULL,
	pool VARCHAR NOT NULL,
	all_or_none BOOLEAN NOT NULL,
	reason VARCHAR NOT NULL,
	began FLOAT NOT NULL,
	ended FLOAT,
	PRIMARY KEY (id)
);
INSERT INTO "operations" VALUES('op-1','start','t4',1,'job 17 waits',1000000.0,1000001.0);
CREATE TABLE plans (
	tick VARCHAR NOT NULL,
	at FLOAT NOT NULL,
	"plan" VARCHAR NOT NULL,
	PRIMARY KEY (tick)
);
INSERT INTO "plans" VALUES('t1',1000000.0,'{"actions": [["start", "t4-1", "job 17 waits", "t4", "17", "op-1"]], "failed": [], "idle_because": "", "never": {}, "refused": []}');
CREATE INDEX ix_operations_began ON operations (began);
CREATE INDEX ix_operations_ended ON operations (ended);
CREATE INDEX ix_operation_nodes_job ON operation_nodes (job);
CREATE INDEX ix_plans_at ON plans (at);
COMMIT;
