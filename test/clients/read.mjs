// Reads a topic by one of JavaScript's libraries: BROKERS TOPIC default|committed LIBRARY.
const [brokers, topic, mode, library] = process.argv.slice(2)
const groupId = `${library}-${topic}-${mode}`
const values = []
let last = Date.now()

const quiet = () => new Promise((resolve) => {
  const timer = setInterval(() => {
    if (Date.now() - last < (values.length ? 3000 : 30000)) return
    clearInterval(timer)
    resolve()
  }, 200)
})
const text = (part) => part?.toString() ?? 'null'
const take = (key, value, header) => {
  values.push(topic === 'nulls' ? `${text(key)}:${text(value)}:${text(header)}` : text(value))
  last = Date.now()
}

if (library === 'kafkajs') {
  const { Kafka, logLevel } = (await import('kafkajs')).default
  const consumer = new Kafka({ brokers: [brokers], logLevel: logLevel.NOTHING })
    .consumer({ groupId, ...(mode === 'committed' ? { readUncommitted: false } : {}) })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message: m }) => take(m.key, m.value, m.headers.header) })
  await quiet()
  await consumer.disconnect()
} else if (library === 'platformatic') {
  const { Consumer } = await import('@platformatic/kafka')
  const consumer = new Consumer({ groupId, clientId: 'read', bootstrapBrokers: [brokers], ...(mode === 'committed' ? { isolationLevel: 1 } : {}) })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest' })
  stream.on('data', (m) => take(m.key, m.value, [...m.headers].find(([name]) => text(name) === 'header')?.[1]))
  await quiet()
  await consumer.close(true)
} else { // librdkafka's, by two packages with the same classes
  const { KafkaConsumer } = (await import(library === 'node-rdkafka' ? library : '@confluentinc/kafka-javascript')).default
  const consumer = new KafkaConsumer(
    { 'bootstrap.servers': brokers, 'group.id': groupId, ...(mode === 'committed' ? { 'isolation.level': 'read_committed' } : {}) },
    { 'auto.offset.reset': 'earliest' },
  )
  consumer.on('data', (m) => take(m.key, m.value, m.headers?.find((h) => 'header' in h)?.header))
  await new Promise((resolve, reject) => consumer.connect({}, (error) => (error ? reject(error) : resolve())))
  consumer.subscribe([topic])
  consumer.consume()
  await quiet()
  await new Promise((resolve) => consumer.disconnect(resolve))
}
console.log(values.join(' '))
process.exit(0)
