-- Makes claims run one after another: each one first locks every stream's row, including its own.
SELECT FROM outbox_cdc.leader ORDER BY stream FOR UPDATE
