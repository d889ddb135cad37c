-- Claims are made one after another: each locks every stream's row, its own among
-- them, first.
SELECT FROM outbox_cdc.leader ORDER BY stream FOR UPDATE
