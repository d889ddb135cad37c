// An application with pg-transactional-outbox: it writes messages, and its handler sends
// what the profile says to Kafka. Test data for the parity test.
// Usage: shop.js write|relay POSTGRES KAFKA TOPIC
const { Client } = require('pg');
const { Kafka, logLevel } = require('kafkajs');
const outbox = require('pg-transactional-outbox');

const [job, database, brokers, topic] = process.argv.slice(2);
const config = {
  outboxOrInbox: 'outbox',
  dbListenerConfig: { connectionString: database },
  settings: {
    dbSchema: 'public', dbTable: 'outbox', enableMaxAttemptsProtection: false, enablePoisonousMessageProtection: false,
    nextMessagesBatchSize: 5, nextMessagesFunctionName: 'next_outbox_messages', nextMessagesPollingIntervalInMs: 50,
  },
};
const logger = outbox.getDisabledLogger();

async function write() {
  const client = new Client({ connectionString: database });
  await client.connect();
  const setup = { outboxOrInbox: 'outbox', database: 'shop', schema: 'public', table: 'outbox', listenerRole: client.user, nextMessagesName: 'next_outbox_messages' };
  await client.query(outbox.DatabaseSetupExporter.createPollingScript(setup, true));
  const store = outbox.initializeMessageStorage(config, logger);
  const payloads = [{ b: 1.5, a: [1, 2] }, {}, { text: 'Überweisung für Zürich' }, { 'ü"\\': '\u2028 😀 \t\n\u0001\u007f </script>' }, { long: 'x'.repeat(100_000) }, { none: null, yes: true }];
  const [aggregateType, messageType] = topic.split('.');
  for (let i = 0; i < 24; i++) {
    await client.query('BEGIN');
    await store({
      id: `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`, aggregateType, messageType, aggregateId: ['order-1', '', 'größe/2', '4'][i % 4],
      payload: payloads[i % payloads.length], metadata: { source: 'shop' }, segment: 'one', createdAt: new Date(1_700_000_000_000 + i * 1000).toISOString(),
    }, client);
    await client.query('COMMIT');
  }
  await client.end();
}

async function relay() {
  const producer = new Kafka({ brokers: [brokers], logLevel: logLevel.NOTHING }).producer();
  await producer.connect();
  outbox.initializePollingMessageListener(config, {
    handle: (message) => producer.send({
      topic: `${message.aggregateType}.${message.messageType}`,
      messages: [{ key: message.aggregateId, value: JSON.stringify(message.payload), headers: { id: message.id, 'message-type': message.messageType } }],
    }),
  }, logger);
}

(job === 'write' ? write : relay)();
